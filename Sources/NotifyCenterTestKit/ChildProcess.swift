import DBusTransport
import Foundation
import Glibc
import Synchronization

/// A second process of a test: started, talked to over its standard input and output, stopped, killed.
///
/// It is killed with this object's end of life, so that a failed test leaves none behind.
public final class ChildProcess: @unchecked Sendable {
    // Unchecked: Process is used under its own thread rules only in init; later calls (signals, state) are thread-safe.
    private let process = Process()
    private let input = Pipe()
    private let output = Collector()
    private let errors = Collector()

    /// A failed start, or a wait that ended in vain.
    public struct Failure: Error, CustomStringConvertible {
        /// What happened.
        public let description: String

        init(_ description: String) { self.description = description }
    }

    /// Starts a program.
    ///
    /// - Parameters:
    ///   - program: a path, or a name to look up in `PATH`.
    ///   - environment: variables beyond those of this process.
    /// - Throws: ``Failure`` where the program is not found or does not start.
    public init(
        _ program: String,
        _ arguments: [String] = [],
        environment: [String: String] = [:],
        directory: String? = nil
    ) throws {
        process.executableURL = URL(fileURLWithPath: try Self.locate(program))
        process.arguments = arguments
        process.environment = ProcessInfo.processInfo.environment.merging(environment) { $1 }
        if let directory { process.currentDirectoryURL = URL(fileURLWithPath: directory) }
        process.standardInput = input
        process.standardOutput = output.pipe
        process.standardError = errors.pipe
        // A child that is gone must not take the test with it when it is written to.
        signal(SIGPIPE, SIG_IGN)
        try process.run()
    }

    deinit { kill() }

    /// The path of a program that this package builds, beside the running one.
    public static func built(_ name: String) -> String {
        let executable = (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? ""
        return URL(fileURLWithPath: executable).deletingLastPathComponent().appendingPathComponent(name).path
    }

    private static func locate(_ program: String) throws -> String {
        if program.contains("/") { return program }
        let folders = (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":") + ["/usr/bin", "/bin"]
        for folder in folders where access("\(folder)/\(program)", X_OK) == 0 { return "\(folder)/\(program)" }
        throw Failure("\(program) is not installed; “make setup” installs what this project needs")
    }

    // MARK: State

    /// The process id.
    public var identifier: Int32 { process.processIdentifier }
    /// Whether it has not ended.
    public var isRunning: Bool { process.isRunning }
    /// The lines that it has written so far.
    public var lines: [String] { output.lines }
    /// What it has written to its standard error so far.
    public var errorText: String { errors.lines.joined(separator: "\n") }

    /// Waits for its end; returns its exit status, or 128 and the signal that ended it.
    @discardableResult
    public func waitUntilExit() -> Int32 {
        process.waitUntilExit()
        return process.terminationReason == .exit ? process.terminationStatus : 128 + process.terminationStatus
    }

    /// Waits, without holding a thread, for a line that `matches`, and returns it. Lines that were there before count.
    ///
    /// - Throws: ``Failure`` with what the process wrote, when it ends or time runs out first.
    @discardableResult
    public func line(
        within timeout: Duration = .seconds(30),
        where matches: (String) -> Bool
    ) async throws -> String {
        let deadline = ContinuousClock.now + timeout
        while true {
            let hasEnded = !isRunning && output.isComplete
            if let line = lines.first(where: matches) { return line }
            guard !hasEnded, ContinuousClock.now < deadline else {
                let reason = hasEnded ? "it ended" : "time ran out"
                throw Failure(
                    "no such line from \(process.executableURL?.lastPathComponent ?? "the process") before \(reason). "
                        + "It wrote:\n\(lines.joined(separator: "\n"))\n\(errorText)"
                )
            }
            try await Task.sleep(for: .milliseconds(2))
        }
    }

    // MARK: Influence

    /// Writes a line to its standard input.
    public func write(_ line: String) throws {
        try input.fileHandleForWriting.write(contentsOf: Data((line + "\n").utf8))
    }

    /// Ends its standard input.
    public func closeInput() throws { try input.fileHandleForWriting.close() }

    /// Sends a signal.
    public func send(_ signal: Int32) {
        if process.isRunning { Glibc.kill(process.processIdentifier, signal) }
    }

    /// Stops it where it stands (SIGSTOP).
    public func suspend() { send(SIGSTOP) }

    /// Lets it go on (SIGCONT).
    public func resume() { send(SIGCONT) }

    /// Ends it without a chance to clean up (SIGKILL).
    public func kill() { send(SIGKILL) }
}

/// Collects the lines of a pipe.
private final class Collector: Sendable {
    private struct State {
        var pending = Data()
        var lines: [String] = []
        var isComplete = false
    }

    let pipe = Pipe()
    private let state = Locked(State())

    init() {
        pipe.fileHandleForReading.readabilityHandler = { [weak self] handle in
            let data = handle.availableData
            self?.take(data)
            if data.isEmpty { handle.readabilityHandler = nil }
        }
    }

    var lines: [String] { state.withLock { $0.lines } }
    var isComplete: Bool { state.withLock { $0.isComplete } }

    private func take(_ data: Data) {
        state.withLock { state in
            guard !data.isEmpty else {
                if !state.pending.isEmpty { state.lines.append(String(decoding: state.pending, as: UTF8.self)) }
                state.pending = Data()
                state.isComplete = true
                return
            }
            state.pending.append(data)
            while let end = state.pending.firstIndex(of: UInt8(ascii: "\n")) {
                state.lines.append(String(decoding: state.pending[state.pending.startIndex..<end], as: UTF8.self))
                state.pending = Data(state.pending[(end + 1)...])
            }
        }
    }
}
