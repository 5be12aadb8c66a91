import DeviceStorage
import Dispatch
import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Testing

@testable import SharedDeviceBroker

@Suite("The file of the token keys")
struct KeyFileTests {
    private let directory: TemporaryDirectory
    private let file: KeyFile

    init() throws {
        directory = try TemporaryDirectory()
        file = KeyFile(path: directory.file("keys.json"))
    }

    private func content(_ name: String) throws -> String {
        try String(contentsOfFile: directory.file(name), encoding: .utf8)
    }

    @Test("the file is readable for all users, is replaced atomically and follows no link")
    func write() throws {
        try file.write("one")
        let old = open(file.path, O_RDONLY)
        defer { close(old) }
        chmod(file.path, 0o600)
        try file.write("two")
        #expect(try mode(of: file.path) == 0o644 && content("keys.json") == "two\n")
        // A reader that has opened the old file reads it to its end.
        var bytes = [UInt8](repeating: 0, count: 16)
        #expect(read(old, &bytes, 16) == 4)
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path) == ["keys.json"])
        try directory.write("untouched", to: "victim")
        symlink(directory.file("victim"), "\(file.path).\(getpid())")
        try file.write("keys")
        #expect(try [content("victim"), content("keys.json")] == ["untouched", "keys\n"])
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
        let ofService = KeyFile.path(environment: ["RUNTIME_DIRECTORY": "/run/shared-device"])
        #expect(ofService == "/run/shared-device/keys.json")
        #expect(KeyFile.path(environment: ["XDG_RUNTIME_DIR": "/run/user/7"]) == nil)
    }

    @Test("the end of a key problem is delivered after the problem")
    func troubleOrder() async throws {
        let troubles = KeyTroubles()
        let told = Shared<[[String]]>([])
        let (isTelling, mayGoOn) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        troubles.follow { texts in
            if !texts.isEmpty {
                isTelling.signal()
                mayGoOn.wait()
            }
            told.withLock { $0.append(texts) }
        }
        async let first: Void = onThread { troubles.set("it has 3 bytes", for: .records) }
        await onThread {
            isTelling.wait()
            troubles.set(nil, for: .records)
            mayGoOn.signal()
        }
        await first
        try await eventually("the end is told") { told.withLock { $0.count } == 3 }
        #expect(told.withLock { $0 } == [[], ["the key of records: it has 3 bytes"], []])
    }
}
