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

    @Test(
        "an adapter's unit leaves /proc and the devices visible to Flatpak sandboxes",
        arguments: [
            "ProtectKernelLogs", "ProtectKernelTunables", "ProtectProc", "ProcSubset", "ProtectControlGroups",
            "PrivateDevices", "ProtectClock", "DevicePolicy", "DeviceAllow", "RestrictNamespaces",
        ]
    )
    func adapter(setting: String) throws {
        #expect(try Self.settings("systemd-system/shared-device-cleanup@.service")[setting] == nil)
    }

    @Test("units that run no app's command filter system calls")
    func filters() throws {
        for unit in [
            "systemd-system/shared-device-enforcement.service", "systemd-user/shared-device-session-traces.service",
        ] {
            let filters = try Self.settings(unit)["SystemCallFilter"] ?? []
            #expect(filters.first == "@system-service" && filters.contains { $0.contains("@mount") }, "\(unit)")
        }
    }
}
