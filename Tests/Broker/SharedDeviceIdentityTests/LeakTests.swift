import DBusTransport
import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDevice
import TestProviders
import Testing

@Suite("What only provider, device and browser may know")
struct LeakTests {
    /// The provider's secrets so far, each with what it is, and the device's own.
    private func secrets(_ test: TestClient) async throws -> [(kind: String, text: String)] {
        let lines = try await test.page("secrets").split(separator: "\n").map { $0.split(separator: " ") }
        return try lines.map { (String(try #require($0.first)), String(try #require($0.last))) }
            + [("client secret", WholeDevice.secret), ("encoded client secret", "s%26cret")]
    }

    /// The files below a directory that contain the text, in their content or their names.
    private func files(with text: String, below directory: String) throws -> [String] {
        let bytes = Data(text.utf8)
        let names = try FileManager.default.subpathsOfDirectory(atPath: directory)
        try #require(names.contains("shared-device.sqlite"), "\(names)")
        return names.filter { name in
            name.contains(text)
                || FileManager.default.contents(atPath: "\(directory)/\(name)")?.range(of: bytes) != nil
        }
    }

    private func check(_ device: WholeDevice, _ test: TestClient, _ moment: String) async throws {
        for (kind, text) in try await secrets(test) {
            // Database, write-ahead log, and what else the broker keeps.
            #expect(try files(with: text, below: device.state) == [], "\(kind), \(moment)")
            #expect(!device.log.contains(text), "\(kind) in a log, \(moment)")
            for program in WholeDevice.Program.allCases {
                let process = "/proc/\(try device.process(program).identifier)"
                for file in ["cmdline", "environ"] {
                    let content = try #require(FileManager.default.contents(atPath: "\(process)/\(file)"))
                    #expect(!content.isEmpty && content.range(of: Data(text.utf8)) == nil, "\(kind) in \(file)")
                }
            }
        }
    }

    @Test(
        "is in no file of the broker, no log, no argument and no variable: signed in, after a refresh, and after the end"
    )
    func nowhere() async throws {
        let device = try await WholeDevice(fault: "leaks")
        let test = try await FaultyProvider.shared.value.client("leaks")
        try await device.signIn(test)
        try await check(device, test, "signed in")
        let token = try await device.token()
        let known = try await secrets(test)
        #expect(known.contains { $0.text == token })
        let kinds = ["code", "state", "nonce", "verifier", "access-token", "refresh-token", "id-token"]
        #expect(kinds.allSatisfy { kind in known.contains { $0.kind == kind } })
        try await check(device, test, "after a refresh")
        // What fails is logged most.
        try await device.kill(.identity)
        _ = try? await device.token()
        try await device.start(.identity)
        let ada = try #require(try await device.account())
        _ = try await device.call(.signOut, ["accountIdentifier": .string(ada.identifier)])
        try await eventually("the end at the provider") { try await test.page("ended").hasPrefix("end-session") }
        try await check(device, test, "after the end")
    }
}
