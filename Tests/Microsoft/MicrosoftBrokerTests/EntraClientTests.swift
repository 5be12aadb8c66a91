import Foundation
import NotifyCenterTestKit
import SharedDevice
import StrictJSON
import Testing

@testable import MicrosoftBroker

/// A program of others, unchanged: the host of siemens/linux-entra-sso, where it is there.
@Suite(
    "linux-entra-sso and the device's account",
    .enabled(if: EntraClient.isThere, "linux-entra-sso.py or python3-pydbus is not there")
)
struct EntraClientTests {
    @Test("it reads the version and the account, and gets a reason where there is no token and no cookie")
    func interactive() async throws {
        let device = try await Device()
        let bridge = try await device.bridge()
        defer { bridge.kill() }
        let ada = try await device.signIn("ada")
        func run(_ command: String) async throws -> JSONValue {
            let text = try await Shell.run(
                "exec /usr/bin/python3 \(EntraClient.path) -i \(command)",
                device.environment
            )
            return try JSONValue(parsing: Array(text.utf8), limits: JSONLimits(size: 65_536))
        }
        #expect(try await run("getVersion")["linuxBrokerVersion"]?.string == "3.0.1")
        let account = try await run("getAccounts")["accounts"]?.array?.first
        #expect(account?["homeAccountId"]?.string == ada.identifier)
        // Of the device's own directory there is no ID token; the client shows the reason.
        #expect(try await run("acquireTokenSilently").status == 9)
        #expect(try await run("acquirePrtSsoCookie").status == 9)
    }

    @Test("it takes a sign-out for the end of the broker, and finds it again")
    func monitor() async throws {
        let device = try await Device()
        let bridge = try await device.bridge()
        defer { bridge.kill() }
        let monitor = try ChildProcess(
            "/usr/bin/python3",
            ["-u", EntraClient.path, "-i", "monitor"],
            environment: device.environment
        )
        defer { monitor.kill() }
        try await monitor.line { $0.hasPrefix("Monitoring") }
        // It says so before the bus has its rule: a sign-out that it has missed is repeated.
        let hasHeard = try await eventually {
            let ada = try await device.signIn("ada")
            _ = try await device.call("getAccounts", .object([:]))
            _ = try await device.app.signout(with: ada)
            return monitor.lines.contains { $0.hasSuffix("is now offline.") }
        }
        #expect(hasHeard)
        try await monitor.line { $0.hasSuffix("is now online.") }
    }
}

private enum EntraClient {
    static let path =
        ProcessInfo.processInfo.environment["LINUX_ENTRA_SSO"]
        ?? URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        .appendingPathComponent("../../../../shared/clients/linux-entra-sso/linux-entra-sso.py").standardized.path

    static var isThere: Bool {
        guard FileManager.default.fileExists(atPath: path),
            let probe = try? ChildProcess("/usr/bin/python3", ["-c", "import pydbus, gi"])
        else { return false }
        return probe.waitUntilExit() == 0
    }
}
