import Basics
import CLinux
import DBus
import Dispatch
import FoundationEssentials
import Glibc
import Synchronization

/// A child process of a test. A test can start it, exchange lines over its standard input and output, stop it and kill
/// it.
///
/// The process is killed when this object is released, so that a failed test leaves none behind. The class avoids
/// Foundation's `Process`, which considers a child running while any grandchild or sibling has inherited its
/// descriptors.
public final class ChildProcess: Sendable {
    private struct State {
        /// The exit status, or 128 plus the signal; `nil` until it is collected.
        var status: Int32?
        /// The write end of its standard input; -1 after it is closed.
        var input: CInt
    }

    /// On the heap, because the thread that collects the status outlives this object.
    private final class SharedState: Sendable {
        private let state: Locked<State>
        init(_ state: State) { self.state = Locked(state) }
        func withLock<Result: Sendable>(_ body: @Sendable (inout State) -> Result) -> Result {
            state.withLock { body(&$0) }
        }
    }

    /// The process id. After the end of the process the kernel may give it to another one.
    public let identifier: Int32
    private let name: String
    private let state: SharedState
    private let output: LineCollector
    private let errors: LineCollector
    private let ended = DispatchGroup()

    /// A program that did not start, or a wait that timed out.
    public struct Failure: Error, CustomStringConvertible {
        /// The failure in words, with the output of the process if that helps.
        public let description: String

        init(_ description: String) { self.description = description }
    }

    /// Starts a program. From then on, this process ignores SIGPIPE: a write to a child that has ended must not kill
    /// it.
    ///
    /// - Parameters:
    ///   - program: a path, or a name to look up in `PATH`.
    ///   - arguments: the arguments on its command line.
    ///   - environment: variables in addition to those of this process.
    /// - Throws: ``Failure`` if the program is not found or does not start.
    public init(_ program: String, _ arguments: [String] = [], environment: [String: String] = [:]) throws {
        signal(SIGPIPE, SIG_IGN)
        let path = try Self.locate(program)
        name = URL(fileURLWithPath: path).lastPathComponent
        let variables = ProcessInfo.processInfo.environment.merging(environment) { $1 }
        let (input, output, errors) = (try Self.pipe(), try Self.pipe(), try Self.pipe())
        let childEnds = [input.read, output.write, errors.write]
        do {
            identifier = try Interruption.unlessEnding {
                try ProgramStart.spawn(
                    path,
                    arguments,
                    environment: variables,
                    descriptors: childEnds.map { .descriptor($0) },
                    // The terminal's Ctrl-C then reaches only this process, which ends its children itself.
                    leadsGroup: Interruption.isHandled
                )
            }
        } catch {
            for descriptor in childEnds + [input.write, output.read, errors.read] { close(descriptor) }
            throw Failure("\(path) does not start: \(error)")
        }
        for descriptor in childEnds { close(descriptor) }
        state = SharedState(State(status: nil, input: input.write))
        self.output = LineCollector(output.read)
        self.errors = LineCollector(errors.read)
        collectStatus()
    }

    deinit {
        kill()
        try? closeInput()
    }

    /// The path of a program of this package, in the directory of the running program.
    public static func built(_ name: String) -> String {
        let executable = (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? ""
        return URL(fileURLWithPath: executable).deletingLastPathComponent().appendingPathComponent(name).path
    }

    // MARK: State

    /// Whether the process has not ended yet. A stopped process counts.
    public var isRunning: Bool { state.withLock { $0.status == nil } }
    /// The lines on its standard output so far.
    public var lines: [String] { output.lines }
    /// The text on its standard error so far.
    public var errorText: String { errors.lines.joined(separator: "\n") }

    /// Waits for its end without blocking a thread; otherwise like ``waitUntilExit()``.
    ///
    /// - Parameter limit: the time after which the process is killed, so that its test fails instead of hanging; `nil`
    ///   means no limit.
    public func exitStatus(within limit: Duration? = .seconds(300)) async -> Int32 {
        let watchdog = limit.map { limit in
            Task { [weak self] in
                // If the sleep was cancelled, the process ended in time.
                guard (try? await Task.sleep(for: limit)) != nil else { return }
                self?.kill()
            }
        }
        defer { watchdog?.cancel() }
        return await withCheckedContinuation { continuation in
            ended.notify(queue: .global()) { continuation.resume(returning: self.waitUntilExit()) }
        }
    }

    /// Blocks this thread until the process ends; returns its exit status, or 128 plus the signal that ended it.
    /// ``lines`` and ``errorText`` are then complete, unless a child of the process is still running and keeps its
    /// output open.
    @discardableResult
    public func waitUntilExit() -> Int32 {
        ended.wait()
        for collector in [output, errors] { collector.waitUntilComplete() }
        return state.withLock { $0.status ?? -1 }
    }

    /// Waits, without blocking a thread, for a line that `matches`, and returns the line. Earlier lines count. If the
    /// wait fails because the process ended, ``lines`` and ``errorText`` are complete.
    ///
    /// - Throws: ``Failure`` with the process's output, if the process ends or time runs out first; `CancellationError`
    ///   if the task is cancelled.
    @discardableResult
    public func line(
        within timeout: Duration = .seconds(120),
        where matches: (String) -> Bool
    ) async throws -> String {
        let deadline = ContinuousClock.now + timeout
        while true {
            let hasEnded = !isRunning && output.isComplete && errors.isComplete
            if let line = lines.first(where: matches) { return line }
            guard !hasEnded, ContinuousClock.now < deadline else {
                let reason = hasEnded ? "it ended" : "time ran out"
                throw Failure(
                    "no such line from \(name) before \(reason). It wrote:\n\(lines.joined(separator: "\n"))\n\(errorText)"
                )
            }
            try await Task.sleep(for: .milliseconds(2))
        }
    }

    // MARK: Control

    /// Writes a line to its standard input. Blocks this thread while the pipe is full.
    ///
    /// - Throws: ``Failure`` if the process no longer reads.
    public func write(_ line: String) throws {
        let bytes = Array((line + "\n").utf8)
        // Outside the lock, because the write blocks if the child does not read.
        let input = state.withLock { $0.input }
        var sent = 0
        while sent < bytes.count {
            let count = bytes[sent...].withUnsafeBytes { Glibc.write(input, $0.baseAddress, $0.count) }
            guard count > 0 else {
                if errno == EINTR { continue }
                throw Failure("\(name) takes no input: \(String(cString: strerror(errno)))")
            }
            sent += count
        }
    }

    /// Closes its standard input. A second call does nothing.
    public func closeInput() throws {
        let input = state.withLock { state -> CInt in
            defer { state.input = -1 }
            return state.input
        }
        if input >= 0 { close(input) }
    }

    /// Sends a signal; does nothing once the process has ended.
    public func send(_ signal: Int32) {
        // Under the lock: after the status is collected, another process may get the id.
        state.withLock { if $0.status == nil { _ = Glibc.kill(identifier, signal) } }
    }

    /// Suspends it (SIGSTOP). On return all its threads are stopped. Does nothing if the process has ended.
    public func suspend() {
        send(SIGSTOP)
        var information = siginfo_t()
        while waitid(P_PID, id_t(identifier), &information, WSTOPPED | WEXITED | WNOWAIT) != 0, errno == EINTR {}
    }

    /// Resumes it (SIGCONT).
    public func resume() { send(SIGCONT) }

    /// Kills it without a chance to clean up (SIGKILL).
    public func kill() { send(SIGKILL) }

    // MARK: Services

    /// Starts a service, and waits until it writes “ready”. If the service ends because the kernel has no inotify
    /// instance left, the function retries. The user's other processes hold the instances, and the kernel releases
    /// those of ended processes with a delay.
    ///
    /// - Throws: ``Failure`` with the process's output, if it ends for another reason or no instance is free within
    ///   two minutes.
    @_spi(Extensions) public static func service(
        _ program: String,
        _ arguments: [String],
        environment: [String: String] = [:]
    ) async throws -> ChildProcess {
        let deadline = ContinuousClock.now + .seconds(120)
        while true {
            let process = try ChildProcess(program, arguments, environment: environment)
            do {
                try await process.line { $0 == "ready" }
                return process
            } catch {
                guard process.errorText.contains("fs.inotify"), ContinuousClock.now < deadline else { throw error }
                try await Task.sleep(for: .milliseconds(200))
            }
        }
    }

    // MARK: Starting and collecting

    private static func pipe() throws -> (read: CInt, write: CInt) {
        var ends: [CInt] = [-1, -1]
        guard CLinux_pipe(&ends) == 0 else { throw Failure("cannot make a pipe: \(String(cString: strerror(errno)))") }
        return (ends[0], ends[1])
    }

    private static func locate(_ program: String) throws -> String {
        if program.contains("/") { return program }
        let path = ProcessInfo.processInfo.environment["PATH"] ?? ""
        // Without the type, Swift infers arrays of characters, also for the folders of `PATH`.
        let folders: [String] =
            path.split(separator: ":").map(String.init) + ["/usr/bin", "/bin", "/usr/sbin", "/sbin"]
        for folder in folders where access("\(folder)/\(program)", X_OK) == 0 { return "\(folder)/\(program)" }
        throw Failure("\(program) is not installed; “make setup” installs what this project needs")
    }

    private func collectStatus() {
        ended.enter()
        let (identifier, ended, state) = (identifier, ended, state)
        detachThread {
            // Wait first and collect under the lock, so that no signal reaches a different process with the same id.
            ProgramStart.waitForEnd(of: identifier)
            state.withLock { $0.status = ProgramStart.collect(identifier) ?? 0 }
            ended.leave()
        }
    }
}

/// Collects the lines that arrive on a descriptor, on a separate thread, until the other side closes it.
final class LineCollector: Sendable {
    private struct State {
        /// The descriptor to read; `nil` after it is closed.
        var descriptor: CInt?
        var received = 0
        var pending: [UInt8] = []
        var lines: [String] = []
        var isComplete = false
    }

    /// The time for which the output of an ended process may stay open: a child of the process may hold it.
    private static let patience = DispatchTimeInterval.seconds(1)

    private let state = Locked(State())
    private let complete = DispatchGroup()

    init(_ descriptor: CInt) {
        state.withLock { $0.descriptor = descriptor }
        complete.enter()
        detachThread { [self] in
            var buffer = [UInt8](repeating: 0, count: 65_536)
            while true {
                let count = read(descriptor, &buffer, buffer.count)
                if count > 0 {
                    take(buffer[..<count])
                } else if count == 0 || errno != EINTR {
                    break
                }
            }
            end()
        }
    }

    /// The lines so far. An unterminated last line counts after the other side has closed.
    var lines: [String] { state.withLock { $0.lines } }
    var isComplete: Bool { state.withLock { $0.isComplete } }

    /// Blocks this thread until the other side has closed the descriptor or has stopped writing. Call it after the
    /// process has ended.
    func waitUntilComplete() {
        var received = state.withLock { $0.received }
        // A child that keeps writing would make this wait endless.
        let deadline = ContinuousClock.now + .seconds(60)
        while ContinuousClock.now < deadline, complete.wait(timeout: .now() + Self.patience) == .timedOut {
            let isSilent = state.withLock { state -> Bool in
                defer { received = state.received }
                guard let descriptor = state.descriptor else { return true }
                var entry = pollfd(fd: descriptor, events: CShort(POLLIN), revents: 0)
                return state.received == received && poll(&entry, 1, 0) == 0
            }
            if isSilent { return }
        }
    }

    private func take(_ bytes: ArraySlice<UInt8>) {
        state.withLock { state in
            state.received += bytes.count
            state.pending += bytes
            var begin = state.pending.startIndex
            while let end = state.pending[begin...].firstIndex(of: UInt8(ascii: "\n")) {
                state.lines.append(String(decoding: state.pending[begin..<end], as: UTF8.self))
                begin = end + 1
            }
            state.pending.removeSubrange(..<begin)
        }
    }

    private func end() {
        state.withLock { state in
            if !state.pending.isEmpty { state.lines.append(String(decoding: state.pending, as: UTF8.self)) }
            state.pending = []
            state.isComplete = true
            if let descriptor = state.descriptor { close(descriptor) }
            state.descriptor = nil
        }
        complete.leave()
    }
}
