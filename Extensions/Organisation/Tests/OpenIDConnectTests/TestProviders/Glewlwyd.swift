import FoundationEssentials
import HTTPClient
import Identity
package import NotifyCenterTestKit
package import OpenIDConnect

/// Debian's glewlwyd with a client for the device, and with Ada at a browser.
package final class Glewlwyd: Sendable {
    private let directory: TemporaryDirectory
    package let process: ChildProcess
    package let issuer: Issuer

    package static let program = "/usr/bin/glewlwyd"

    /// - Parameters:
    ///   - port: The port to try first.
    ///   - options: Further options of the harness; see `Providers/glewlwyd --help`.
    package init(port: Int? = nil, options: [String] = []) async throws {
        directory = try TemporaryDirectory("glewlwyd")
        let ports = port.map { ["--port", "\($0)"] } ?? []
        let arguments = ["\(FaultyProvider.folder)/glewlwyd", directory.path] + ports
        process = try ChildProcess("/usr/bin/python3", arguments + options)
        let line = try await process.line { $0.hasPrefix("ready ") }
        guard let issuer = Issuer(String(line.dropFirst("ready ".count))) else { throw NoAddress() }
        self.issuer = issuer
    }

    package func client(clock: OpenIDConnectClient.Clock = .init(), secret: String = "device-secret-7") -> TestClient {
        let http = HTTPClient(patience: 30)
        let credentials = ClientCredentials(identifier: "device-7", secret: Secret(secret))
        return TestClient(
            client: OpenIDConnectClient(issuer: issuer, credentials: credentials, http: http, clock: clock),
            http: http
        )
    }

    /// Runs a command of the harness, and returns its result.
    package func run(_ command: String) async throws -> String {
        let before = answers.count
        try process.write(command)
        try await eventually("an answer of glewlwyd's harness") { answers.count > before || !process.isRunning }
        guard answers.count > before else { throw HarnessEnded(text: process.errorText) }
        return String(answers[before].dropFirst("done ".count))
    }

    private var answers: [String] { process.lines.filter { $0.hasPrefix("done") } }

    /// Signs Ada in with her browser.
    package func signIn(_ client: OpenIDConnectClient) async throws -> OpenIDConnectClient.SignedIn {
        let flow = try await client.beginSignIn(redirect: "http://127.0.0.1:8976/callback")
        let start = Date()
        let answer = try await run("browse " + flow.address(scopes: ["openid"]))
        return try await client.completeSignIn(
            flow,
            query: String(answer.drop { $0 != "?" }.dropFirst()),
            requestedAt: start
        )
    }
}

struct HarnessEnded: Error {
    let text: String
}
