import Basics
import CLinux
import DBus
import Glibc
import Synchronization

extension HelperProcess {
    @_spi(Extensions) public struct End: Sendable {
        /// The exit status, or 128 plus the signal. `nil` if the program has not ended although it was killed, or if
        /// other code in this process has collected its status.
        @_spi(Extensions) public var status: Int32?
        @_spi(Extensions) public var isLate = false
    }

    @_spi(Extensions) public struct Patience: Sendable {
        @_spi(Extensions) public let run: Duration
        /// The time for it to end after SIGTERM; if zero, it is killed at once.
        @_spi(Extensions) public let grace: Duration
        /// The time for it to end after SIGKILL. A program that waits in the kernel for an unresponsive file system
        /// ends only when the file system responds.
        @_spi(Extensions) public let killed: Duration

        @_spi(Extensions) public init(_ run: Duration, grace: Duration = .zero, killed: Duration = .seconds(10)) {
            self.run = run
            self.grace = grace
            self.killed = killed
        }
    }

    /// Runs a program to its end on this thread, and passes its standard output to `take`. With `settings.leadsGroup`,
    /// the rest of its process group is killed before its status is collected.
    ///
    /// A child of the program may keep the output open. This function does not wait for that: at the program's end,
    /// everything it wrote itself is in the pipe.
    ///
    /// - Parameters:
    ///   - settings: its `output` is ignored.
    ///   - withErrors: whether to include standard error.
    ///   - started: called with the process once it runs.
    ///   - take: receives each piece of output, on this thread.
    /// - Throws: ``Failure`` if the program does not start, or if an earlier run of the same command line was killed
    ///   and has not ended.
    @_spi(Extensions) public static func runToEnd(
        _ program: String,
        _ arguments: [String],
        _ settings: Settings,
        withErrors: Bool = false,
        within patience: Patience,
        started: (HelperProcess) -> Void = { _ in },
        take: (ArraySlice<UInt8>) -> Void
    ) throws(Failure) -> End {
        let command = [program] + arguments
        if let earlier = unended.withLock({ $0[command] }) {
            throw Failure("\(program) is not started again: \(earlier) was killed, but has not ended")
        }
        var ends: [CInt] = [-1, -1]
        guard CLinux_pipe(&ends) == 0 else { throw Failure("no pipe: \(String(cString: strerror(errno)))") }
        defer { close(ends[0]) }
        var settings = settings
        settings.output = .descriptor(ends[1])
        if withErrors { settings.errors = .descriptor(ends[1]) }
        let child = Result { () throws(Failure) in try HelperProcess(program, arguments, settings) }
        close(ends[1])
        let process = try child.get()
        started(process)
        guard let descriptor = ProcessDescriptor(process.identifier) else {
            let reason = String(cString: strerror(errno))
            process.kill(leadsGroup: settings.leadsGroup)
            _ = process.end()
            throw Failure("\(program) cannot be watched: \(reason)")
        }
        var output = ProgramOutput(descriptor: ends[0])
        var end = End()
        if !output.read(until: descriptor, by: .now + patience.run, take) {
            end.isLate = true
            if patience.grace > .zero { process.kill(SIGTERM, leadsGroup: settings.leadsGroup) }
            if patience.grace == .zero || !output.read(until: descriptor, by: .now + patience.grace, take) {
                process.kill(leadsGroup: settings.leadsGroup)
                guard descriptor.hasEnded(by: .now + patience.killed) else {
                    process.leaveUnended(command)
                    return end
                }
                _ = output.read(until: descriptor, by: .now, take)
            }
        }
        if settings.leadsGroup { process.killGroup(SIGKILL) }
        end.status = process.end()
        return end
    }

    /// Runs a program to its end, and returns its status with the beginning of its standard output and standard error.
    /// Cancelling the task kills it.
    ///
    /// - Parameters:
    ///   - limit: the number of bytes to keep.
    ///   - patience: the time until the program is killed.
    ///   - killed: the time for it to end after that.
    /// - Throws: ``Failure`` if the program does not start.
    @_spi(Extensions) public static func output(
        of program: String,
        _ arguments: [String],
        limit: Int = 65_536,
        patience: Duration,
        killed: Duration = .seconds(10)
    ) async throws(Failure) -> (status: Int32?, text: String) {
        try await output(
            of: program,
            arguments,
            Settings(),
            withErrors: true,
            limit: limit,
            within: Patience(patience, killed: killed)
        )
    }

    /// Like the simpler `output`, with all settings.
    ///
    /// - Parameters:
    ///   - settings: its `output` is ignored.
    ///   - withErrors: whether to include standard error.
    ///   - patience: its grace period also applies to a cancelled task.
    @_spi(Extensions) public static func output(
        of program: String,
        _ arguments: [String],
        _ settings: Settings,
        withErrors: Bool,
        limit: Int = 65_536,
        within patience: Patience
    ) async throws(Failure) -> (status: Int32?, text: String) {
        let cancellation = Cancellation(grace: patience.grace)
        let result = await withTaskCancellationHandler {
            await onSystemThread {
                var bytes: [UInt8] = []
                return Result { () throws(Failure) in
                    let end = try runToEnd(
                        program,
                        arguments,
                        settings,
                        withErrors: withErrors,
                        within: patience,
                        started: cancellation.started,
                        take: { bytes += $0.prefix(limit - bytes.count) }
                    )
                    return (end.status, String(decoding: bytes, as: UTF8.self))
                }
            }
        } onCancel: {
            cancellation.cancel()
        }
        return try result.get()
    }

    /// Killed programs that have not ended, by command line. A second run of the same command line is refused.
    private static let unended = Locked<[[String]: Int32]>([:])

    private func leaveUnended(_ command: [String]) {
        Self.unended.withLock { $0[command] = identifier }
        let thread = QuietThread.start("helper") { [self] in
            _ = end()
            Self.unended.withLock { $0[command] = nil }
        }
        // Without a thread, the process is never collected: it keeps its id, and its end would go unnoticed.
        if thread == nil { Self.unended.withLock { $0[command] = nil } }
    }

    private func kill(_ signal: Int32 = SIGKILL, leadsGroup: Bool) {
        if leadsGroup { killGroup(signal) } else { kill(signal) }
    }

    /// Also ends a process that starts after its task was cancelled.
    private final class Cancellation: Sendable {
        private let state = Locked<(isCancelled: Bool, process: HelperProcess?)>((false, nil))
        private let grace: Duration

        init(grace: Duration) { self.grace = grace }

        @Sendable func started(_ process: HelperProcess) {
            let isCancelled = state.withLock { state in
                state.process = process
                return state.isCancelled
            }
            if isCancelled { end(process) }
        }

        func cancel() {
            let process = state.withLock { state in
                state.isCancelled = true
                return state.process
            }
            if let process { end(process) }
        }

        private func end(_ process: HelperProcess) {
            guard grace > .zero else { return process.kill() }
            process.kill(SIGTERM)
            let grace = grace
            Task {
                try? await Task.sleep(for: grace)
                // Has no effect if the process has ended.
                process.kill()
            }
        }
    }
}

private struct ProgramOutput {
    let descriptor: CInt
    private var isOpen = true
    private var buffer = [UInt8](repeating: 0, count: 65_536)

    init(descriptor: CInt) { self.descriptor = descriptor }

    /// Reads until the process ends, and then what is already in the pipe.
    ///
    /// - Returns: whether the process has ended by `deadline`.
    mutating func read(
        until process: ProcessDescriptor,
        by deadline: ContinuousClock.Instant,
        _ take: (ArraySlice<UInt8>) -> Void
    ) -> Bool {
        while isOpen {
            var looks = [
                pollfd(fd: process.descriptor, events: Int16(POLLIN), revents: 0),
                pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0),
            ]
            let count = poll(&looks, 2, milliseconds(until: deadline))
            if count > 0, looks[0].revents != 0 {
                // Only the bytes that are there now: a child that keeps writing must not occupy this thread.
                var left: CInt = 0
                _ = ioctl(descriptor, UInt(FIONREAD), &left)
                while left > 0, isOpen { left -= CInt(readOnce(limit: Int(left), take)) }
                return true
            }
            if count > 0 { _ = readOnce(limit: buffer.count, take) }
            if ContinuousClock.now >= deadline { return process.hasEnded }
        }
        return process.hasEnded(by: deadline)
    }

    private mutating func readOnce(limit: Int, _ take: (ArraySlice<UInt8>) -> Void) -> Int {
        let count = Glibc.read(descriptor, &buffer, min(limit, buffer.count))
        if count > 0 { take(buffer[..<count]) }
        if count == 0 || count < 0 && errno != EINTR { isOpen = false }
        return max(count, 0)
    }
}
