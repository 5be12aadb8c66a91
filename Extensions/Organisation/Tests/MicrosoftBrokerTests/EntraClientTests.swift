import Basics
import Cryptography
import Foundation
import NotifyCenterTestKit
import OpenIDConnect
import SharedDevice
import TestProviders
import Testing

@testable import MicrosoftBroker

/// Runs an unmodified third-party program: the host of siemens/linux-entra-sso, if it is installed.
@Suite(
    "linux-entra-sso and the device's account",
    .enabled(if: EntraClient.isThere, "linux-entra-sso.py (LINUX_ENTRA_SSO=path) or python3-pydbus is not there")
)
struct EntraClientTests {
    /// A substitute for the browser: sends lines of JSON to the client with a length prefix, and prints the responses
    /// as lines.
    private static let browser = """
        import struct, subprocess, sys, threading
        client = subprocess.Popen(["/usr/bin/python3", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        def hear():
            while length := client.stdout.read(4):
                print(client.stdout.read(struct.unpack("@I", length)[0]).decode(), flush=True)
        hearing = threading.Thread(target=hear)
        hearing.start()
        for line in sys.stdin:
            message = line.strip().encode()
            client.stdin.write(struct.pack("@I", len(message)) + message)
            client.stdin.flush()
        client.stdin.close()
        hearing.join()
        client.wait()
        """

    private func heard(_ command: String, _ browser: ChildProcess) -> [JSONValue] {
        browser.lines.compactMap { line in
            let answer = try? JSONValue(parsing: Array(line.utf8), limits: JSONLimits(size: 65_536))
            return answer?["command"]?.string == command ? answer?["message"] : nil
        }
    }

    private func ask(
        _ command: String,
        _ browser: ChildProcess,
        _ more: [String: JSONValue] = [:]
    ) async throws -> JSONValue {
        let before = heard(command, browser).count
        try browser.write(JSONValue.object(more.merging(["command": .string(command)]) { $1 }).text)
        try await eventually("a response to \(command)") { heard(command, browser).count > before }
        return try #require(heard(command, browser).last)
    }

    @Test("the extension receives version, account, token and each broker restart")
    func nativeMessaging() async throws {
        let device = try await ProviderDevice(fault: "bridge.native")
        try await device.signIn()
        let browser = try ChildProcess(
            "/usr/bin/python3",
            ["-c", Self.browser, EntraClient.path ?? ""],
            environment: device.environment
        )
        defer { browser.kill() }
        let state = "brokerStateChanged"
        try await eventually("the client is online") { heard(state, browser) == [.string("online")] }
        #expect(try await ask("getVersion", browser)["linuxBrokerVersion"]?.string == "3.0.1")
        let account = try #require(try await ask("getAccounts", browser)["accounts"]?.array?.first)
        #expect(account["username"]?.string == "ada@example.com")
        let response = try await ask("acquireTokenSilently", browser, ["account": account])["brokerTokenResponse"]
        let token = try #require(response?["accessToken"]?.string, "\(response?["error"]?["context"]?.string ?? "")")
        #expect(try await device.device.test.page("secrets").contains("access-token \(token)"))
        try await device.device.signOut()
        let states: [JSONValue] = ["online", "offline", "online"].map { .string($0) }
        try await eventually("the client is online again") { heard(state, browser) == states }
        #expect(try await ask("getAccounts", browser)["accounts"] == .array([]))
        // The client ends with the browser.
        try browser.closeInput()
        #expect(await browser.exitStatus(within: .seconds(60)) == 0)
    }
}

private enum EntraClient {
    /// The path from the variable, next to this package, or in the installed locations.
    static let path: String? = {
        if let path = ProcessInfo.processInfo.environment["LINUX_ENTRA_SSO"] { return path }
        var folder = URL(fileURLWithPath: #filePath)
        for _ in 0..<6 { folder.deleteLastPathComponent() }
        let beside = folder.path + "/shared/clients"
        return [beside, "/usr/libexec", "/usr/local/libexec"].map { $0 + "/linux-entra-sso/linux-entra-sso.py" }
            .first { FileManager.default.fileExists(atPath: $0) }
    }()

    static var isThere: Bool {
        guard let path, FileManager.default.fileExists(atPath: path),
            let probe = try? ChildProcess("/usr/bin/python3", ["-c", "import pydbus, gi"])
        else { return false }
        return probe.waitUntilExit() == 0
    }
}
