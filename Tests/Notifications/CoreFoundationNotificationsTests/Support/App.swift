import NotifyCenterTestKit

/// A running `scripted-app`: calls CoreFoundation's functions in a separate process, whose main thread runs a run loop.
struct App {
    let bus: PrivateBus
    private let process: ChildProcess

    init(_ bus: PrivateBus? = nil) throws {
        self.bus = try bus ?? PrivateBus()
        process = try ChildProcess(ChildProcess.built("scripted-app"), environment: self.bus.environment)
    }

    /// The failures that these functions cannot return, from the app's standard error.
    var failures: String { process.errorText }

    /// The arguments of its callbacks, in order.
    var heard: [String] {
        process.lines.filter { $0.hasPrefix("heard ") && !$0.contains("\"end ") }.map { String($0.dropFirst(6)) }
    }

    /// Runs these commands in the app, one after the other, and waits until they are done.
    func perform(_ commands: [String]) async throws { for command in commands { try await perform(command) } }

    func perform(_ command: String) async throws {
        let answers = process.lines.count { $0 == "done" }
        try process.write(command)
        try await eventually("“\(command)” is done") {
            guard process.isRunning else { throw Ended(command: command, errors: process.errorText) }
            return process.lines.count { $0 == "done" } > answers
        }
    }

    /// Returns the line that the app printed for a command.
    func answer(to command: String) async throws -> String? {
        try await perform(command)
        return process.lines.last { $0 != "done" }
    }

    /// Makes the app post a Darwin notification and wait for it, and returns the notifications received so far. All its
    /// earlier posts have then arrived, because its posts use one connection and keep their order (CF-D4).
    func everythingHeard() async throws -> [String] {
        let end = "end \(process.lines.count)"
        let word = end.replacing(" ", with: "%20")
        try await perform(["add darwin 999 \(word) - 4", "post darwin \(word) - - false"])
        try await process.line { $0.contains("\"\(end)\"") }
        return heard
    }

    struct Ended: Error {
        let command: String
        let errors: String
    }
}
