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

    @Test func aFileOfThisUserIsRead() throws {
        try write("set a 1\n")
        defer { unlink(path) }
        #expect(try ConfigurationFile.read(path) == Array("set a 1\n".utf8))
    }

    // Rules, a.5
    @Test func aFileThatOthersMayWriteIsNotUsed() throws {
        defer { unlink(path) }
        for mode in [0o664, 0o646] as [mode_t] {
            try write("set a 1\n", mode: mode)
            #expect(refusal() == .writableByOthers)
        }
    }

    @Test(.enabled(if: geteuid() == 0, "files of others can be made by root only"))
    func aFileOfAnotherUserIsNotUsed() throws {
        try write("set a 1\n")
        defer { unlink(path) }
        chown(path, 65_534, 65_534)
        #expect(refusal() == .foreignOwner(65_534))
    }

    @Test func onlyARegularFileIsUsed() throws {
        #expect(refusal() == .missing)
        mkfifo(path, 0o600)
        #expect(refusal() == .noFile)
        unlink(path)
        mkdir(path, 0o700)
        #expect(refusal() == .noFile)
        rmdir(path)
        try write(String(repeating: "#", count: 1 << 20 + 1))
        #expect(refusal() == .tooLarge)
        unlink(path)
    }

    // Rules, a.5: the file may reserve any name.
    @Test func onlyAMissingFileMeansThatNothingIsReserved() throws {
        let rules = MachineRules(path: path)
        mkdir(path, 0o700)
        #expect(throws: ConfigurationFileError(path: path, reason: .noFile)) { try rules.read() }
        rmdir(path)
        // The failure is not cached.
        #expect(try rules.read() == AccessRules())
    }

    @Test func rulesThatWereReadStay() throws {
        let rules = MachineRules(path: path)
        try write("reserve a.\n")
        defer { unlink(path) }
        let reserved = AccessRules(reservations: [.init(prefix: "a.", user: 0, group: 0, access: 0x333)])
        #expect(try rules.read() == reserved)
        try write("reserve b.\n")
        #expect(try rules.read() == reserved)
    }

    @Test func aFailureSaysWhatToDo() {
        let failure = ConfigurationFileError(path: "/x", reason: .writableByOthers)
        #expect(
            failure.description
                == "could not use the configuration /x: other users may write it; forbid that (chmod go-w)"
        )
    }
}
