import Foundation
import NotifyCenterTestKit
import Testing

@Suite("The systemd units of programs that clean up")
struct UnitFileTests {
    private static let directory = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        .appendingPathComponent("../../../Packaging/system").standardizedFileURL

    private static func settings(_ unit: String) throws -> [String: [String]] {
        let text = try String(contentsOf: directory.appendingPathComponent(unit), encoding: .utf8)
        var settings: [String: [String]] = [:]
        for line in text.split(separator: "\n") where line.first != "#" {
            let parts = line.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            if parts.count == 2 { settings[parts[0], default: []].append(parts[1]) }
        }
        return settings
    }

    @Test("an adapter's unit hides nothing from sandboxes; other units filter system calls")
    func confinement() throws {
        let hiding: Set = [
            "ProtectKernelLogs", "ProtectKernelTunables", "ProtectProc", "ProcSubset", "ProtectControlGroups",
            "PrivateDevices", "ProtectClock", "DevicePolicy", "DeviceAllow", "RestrictNamespaces",
        ]
        let adapter = try Self.settings("systemd-system/shared-device-cleanup@.service")
        #expect(!adapter.isEmpty && hiding.intersection(adapter.keys) == [])
        for unit in [
            "systemd-system/shared-device-enforcement.service", "systemd-user/shared-device-session-traces.service",
        ] {
            let filters = try Self.settings(unit)["SystemCallFilter"] ?? []
            #expect(filters.first == "@system-service" && filters.contains { $0.contains("@mount") }, "\(unit)")
        }
    }
}
