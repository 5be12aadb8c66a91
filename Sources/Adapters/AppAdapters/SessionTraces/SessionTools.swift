import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice

/// The session's command-line tools that remove traces.
struct SessionTools: Sendable {
    private static let patience = Duration.seconds(15)

    private let folders: [String]

    init(environment: [String: String]) {
        folders = (environment["PATH"] ?? "/usr/bin:/bin").split(separator: ":").map(String.init)
    }

    func has(_ name: String) -> Bool { folders.contains { access("\($0)/\(name)", X_OK) == 0 } }

    /// Runs a tool to its end with `LC_ALL=C`.
    ///
    /// - Returns: its status and the text of both outputs.
    /// - Throws: ``AdapterFailure`` if a signal ends the tool, or if it exceeds the timeout and is killed. A missing
    ///   tool has the status 127.
    func output(of name: String, _ arguments: [String]) async throws(AdapterFailure) -> (status: Int32, text: String) {
        let words = ([name] + arguments).joined(separator: " ")
        do throws(HelperProcess.Failure) {
            let (status, text) = try await HelperProcess.output(
                of: "env",
                ["LC_ALL=C", name] + arguments,
                patience: Self.patience
            )
            guard let status, status < 128 else {
                throw HelperProcess.Failure("it did not end within \(Self.patience)")
            }
            return (status, text)
        } catch {
            throw AdapterFailure("run", words, error.description, remedy: "Try it in the session")
        }
    }

    /// Runs a tool whose child keeps running, without waiting for that child's output.
    ///
    /// - Throws: ``AdapterFailure`` unless the status is 0.
    func run(_ name: String, _ arguments: [String]) async throws(AdapterFailure) {
        let shell = #"exec "$@" >/dev/null 2>&1"#
        let (status, _) = try await output(of: "sh", ["-c", shell, "sh", name] + arguments)
        guard status != 0 else { return }
        let words = ([name] + arguments).joined(separator: " ")
        throw AdapterFailure("run", words, "it ended with status \(status)", remedy: "Try it in the session")
    }
}
