package import NotifyCenterTestKit
package import OpenIDConnect

/// Debian's glewlwyd with a client for the device, and with Ada at a browser.
package final class Glewlwyd: Sendable {
    private let directory: TemporaryDirectory
    package let process: ChildProcess
    package let issuer: Issuer

    package static let program = "/usr/bin/glewlwyd"

    /// - Parameter options: Options of the harness; see `Providers/glewlwyd --help`.
    package init(options: [String] = []) async throws {
        directory = try TemporaryDirectory("glewlwyd")
        let arguments = ["\(FaultyProvider.folder)/glewlwyd", directory.path]
        process = try ChildProcess("/usr/bin/python3", arguments + options)
        let line = try await process.line { $0.hasPrefix("ready ") }
        guard let issuer = Issuer(String(line.dropFirst("ready ".count))) else { throw NoAddress() }
        self.issuer = issuer
    }

    package func client(secret: String = "device-secret-7") -> TestClient { TestClient(issuer, secret: secret) }

    /// Runs a command of the harness, and returns its result.
    package func run(_ command: String) async throws -> String {
        let before = answers.count
        try process.write(command)
        try await eventually("a response of glewlwyd's harness") { answers.count > before || !process.isRunning }
        guard answers.count > before else { throw HarnessEnded(text: process.errorText) }
        return String(answers[before].dropFirst("done ".count))
    }

    private var answers: [String] { process.lines.filter { $0.hasPrefix("done") } }

    /// Opens an address as Ada, and returns the query of the redirect.
    package func browse(_ address: String) async throws -> String {
        String(try await run("browse " + address).drop { $0 != "?" }.dropFirst())
    }
}

struct HarnessEnded: Error {
    let text: String
}
