import Foundation
import Glibc
import Testing

@testable import NotifyCenter

@Suite struct ConfigurationFileTests {
    private let path = NSTemporaryDirectory() + "notify-conf-\(UUID().uuidString)"

    private func write(_ text: String, mode: mode_t = 0o644) throws {
        try Data(text.utf8).write(to: URL(fileURLWithPath: path))
        chmod(path, mode)
    }

    private func refusal() -> ConfigurationFileError.Reason? {
        do throws(ConfigurationFileError) {
            _ = try ConfigurationFile.read(path)
            return nil
        } catch {
            return error.reason
        }
    }

    // Rules, a.5
    @Test("only a regular file that no other user may write is read")
    func refusals() throws {
        defer { unlink(path) }
        #expect(refusal() == .missing)
        mkfifo(path, 0o600)
        #expect(refusal() == .noFile)
        unlink(path)
        mkdir(path, 0o700)
        #expect(refusal() == .noFile)
        rmdir(path)
        try write(String(repeating: "#", count: 1 << 20 + 1))
        #expect(refusal() == .tooLarge)
        for mode in [0o664, 0o646] as [mode_t] {
            try write("set a 1\n", mode: mode)
            #expect(refusal() == .writableByOthers, "\(mode)")
        }
        try write("set a 1\n")
        #expect(try ConfigurationFile.read(path) == Array("set a 1\n".utf8))
        let failure = ConfigurationFileError(path: "/x", reason: .writableByOthers)
        let text = "could not use the configuration /x: other users may write it; forbid that (chmod go-w)"
        #expect(failure.description == text)
    }

    @Test(.enabled(if: geteuid() == 0, "files of others can be made by root only"))
    func aFileOfAnotherUserIsNotUsed() throws {
        try write("set a 1\n")
        defer { unlink(path) }
        chown(path, 65_534, 65_534)
        #expect(refusal() == .foreignOwner(65_534))
    }

    // Rules, a.5: the file may reserve any name.
    @Test("only a missing file reserves nothing, and rules that were read stay")
    func rules() throws {
        mkdir(path, 0o700)
        let missing = MachineRules(path: path)
        #expect(throws: ConfigurationFileError(path: path, reason: .noFile)) { try missing.read() }
        rmdir(path)
        #expect(try missing.read() == AccessRules(), "the failure is not cached")
        let rules = MachineRules(path: path)
        defer { unlink(path) }
        let reserved = AccessRules(reservations: [.init(prefix: "a.", user: 0, group: 0, access: 0x333)])
        for prefix in ["a.", "b."] {
            try write("reserve \(prefix)\n")
            #expect(try rules.read() == reserved, "\(prefix)")
        }
    }
}
