import DeviceStorage
import Foundation
import Glibc
import NotifyCenterTestKit
import Testing

@testable import SharedDeviceBroker

@Suite("The file of the token keys")
struct KeyFileTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    @Test("the file is readable for all users and is replaced atomically")
    func write() throws {
        let file = KeyFile(path: directory.path + "/keys.json")
        try file.write("one")
        let old = open(file.path, O_RDONLY)
        defer { close(old) }
        chmod(file.path, 0o600)
        try file.write("two")
        var information = stat()
        stat(file.path, &information)
        #expect(information.st_mode & 0o777 == 0o644)
        #expect(try String(contentsOfFile: file.path, encoding: .utf8) == "two\n")
        // A reader that has opened the old file reads it to its end.
        var bytes = [UInt8](repeating: 0, count: 16)
        #expect(read(old, &bytes, 16) == 4)
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path) == ["keys.json"])
    }

    @Test("a symbolic link at the temporary file's path is not followed")
    func link() throws {
        let file = KeyFile(path: directory.path + "/keys.json")
        let victim = directory.path + "/victim"
        try "untouched".write(toFile: victim, atomically: true, encoding: .utf8)
        symlink(victim, "\(file.path).\(getpid())")
        try file.write("keys")
        #expect(try String(contentsOfFile: victim, encoding: .utf8) == "untouched")
        #expect(try String(contentsOfFile: file.path, encoding: .utf8) == "keys\n")
    }

    @Test("if the file cannot be written, the error names it and the reason")
    func failure() {
        let error = #expect(throws: StoreError.self) {
            try KeyFile(path: directory.path + "/none/keys.json").write("x")
        }
        #expect(error?.attempted.contains("/none/keys.json") == true)
    }

    @Test("the file is in the service's runtime directory or nowhere")
    func place() {
        #expect(
            KeyFile.path(environment: ["RUNTIME_DIRECTORY": "/run/shared-device"]) == "/run/shared-device/keys.json"
        )
        #expect(KeyFile.path(environment: ["XDG_RUNTIME_DIR": "/run/user/7"]) == nil)
    }
}
