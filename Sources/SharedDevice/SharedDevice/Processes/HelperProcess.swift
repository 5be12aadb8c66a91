public import Basics
import CLinux
import DBus
import FoundationEssentials
public import Glibc
import Synchronization

/// A program that this process has started. Its process id is not reused until its status is collected.
@_spi(Extensions) public final class HelperProcess: Sendable {
    @_spi(Extensions) public struct Failure: Error, CustomStringConvertible {
        @_spi(Extensions) public let description: String
        /// The description without the program's name at its beginning.
        @_spi(Extensions) public let reason: String

        /// - Parameter reason: `nil` if the description does not name the program.
        @_spi(Extensions) public init(_ description: String, reason: String? = nil) {
            self.description = description
            self.reason = reason ?? description
        }
    }

    /// How to start a program. By default it inherits nothing from this process but the environment variables.
    @_spi(Extensions) public struct Settings: Sendable {
        @_spi(Extensions) public var environment =
            ProcessEnvironment.isIgnored ? [:] : ProcessInfo.processInfo.environment
        @_spi(Extensions) public var output = ProgramStart.Descriptor.nothing
        @_spi(Extensions) public var errors = ProgramStart.Descriptor.nothing
        @_spi(Extensions) public var third: CInt?
        /// Whether the program gets its own process group. It can then be killed together with its children, and the
        /// terminal's signals do not reach it.
        @_spi(Extensions) public var leadsGroup = false

        @_spi(Extensions) public init() {}
    }

    @_spi(Extensions) public let identifier: Int32
    private let isCollected = Locked(false)
    /// The programs whose status is not collected. One that was killed and has not ended has its command line here: a
    /// second run of it is refused.
    private static let started = Locked<[Int32: [String]?]>([:])

    /// The programs whose status this process has not collected yet. All its other children were adopted.
    @_spi(Extensions) public static var own: Set<Int32> { started.withLock { Set($0.keys) } }

    /// Starts the program, which is looked up in `PATH`.
    @_spi(Extensions) public init(
        _ program: String,
        _ arguments: [String],
        _ settings: Settings = Settings()
    ) throws(Failure) {
        identifier = try Self.started.withLock { started throws(Failure) in
            do throws(ProgramStart.Failure) {
                // Under the lock, so that the child is not mistaken for an adopted one.
                let identifier = try ProgramStart.spawn(
                    program,
                    arguments,
                    environment: settings.environment,
                    descriptors: [.nothing, settings.output, settings.errors]
                        + (settings.third.map { [.descriptor($0)] } ?? []),
                    leadsGroup: settings.leadsGroup
                )
                started[identifier] = .some(nil)
                return identifier
            } catch {
                throw Failure("\(program) does not start: \(error)", reason: "\(error)")
            }
        }
    }

    /// Sends a signal. Does nothing after the status is collected.
    @_spi(Extensions) public func kill(_ signal: Int32 = SIGKILL) {
        isCollected.withLock { if !$0 { _ = Glibc.kill(identifier, signal) } }
    }

    @_spi(Extensions) public func killGroup(_ signal: Int32) {
        isCollected.withLock { if !$0 { _ = Glibc.kill(-identifier, signal) } }
    }

    /// Waits on this thread until the program ends, and collects its status. Call it once. Returns ``End/status``.
    @_spi(Extensions) public func end() -> Int32? {
        // Wait first and collect under the lock, so that no signal reaches a different process with the same id.
        ProgramStart.waitForEnd(of: identifier)
        return isCollected.withLock { isCollected in
            isCollected = true
            defer { _ = Self.started.withLock { $0.removeValue(forKey: identifier) } }
            return ProgramStart.collect(identifier)
        }
    }

    /// Like ``end()``, without blocking a thread of Swift's pool. Cancelling the task kills the program.
    @_spi(Extensions) public func waitUntilEnd() async -> Int32? {
        await withTaskCancellationHandler {
            await onSystemThread { self.end() }
        } onCancel: {
            kill()
        }
    }

    /// Runs a program to its end. Cancelling the task kills it. Throws if the program ends with a status other than 0.
    @_spi(Extensions) public static func run(_ program: String, _ arguments: [String]) async throws {
        let status = await (try HelperProcess(program, arguments)).waitUntilEnd()
        guard let status, status != 0 else { return }
        throw Failure("\(program) ended with status \(status)")
    }
}

extension HelperProcess {
    @_spi(Extensions) public struct End: Sendable {
        /// The exit status, or 128 plus the signal. `nil` if the program has not ended although it was killed, or if
        /// other code in this process has collected its status.
        @_spi(Extensions) public var status: Int32?
        @_spi(Extensions) public var isLate = false
    }

    /// Runs a program to its end on this thread, and passes its standard output to `take`. With `settings.leadsGroup`,
    /// the rest of its process group is killed before its status is collected. Does not wait for a child that keeps the
    /// output open: at the program's end, everything it wrote itself is in the pipe.
    ///
    /// - Parameters:
    ///   - settings: its `output` is ignored.
    ///   - withErrors: whether to include standard error.
    ///   - patience: the time until the program is stopped.
    ///   - grace: the time from SIGTERM to SIGKILL. Zero means SIGKILL at once.
    ///   - killed: the time to wait for the end after SIGKILL. A program that waits in the kernel for an unresponsive
    ///     file system ends only when the file system responds.
    ///   - started: called with the process once it runs.
    ///   - take: receives each piece of output, on this thread.
    /// - Throws: ``Failure`` if the program does not start, or if an earlier run of the same command line was killed
    ///   and has not ended.
    @_spi(Extensions) public static func runToEnd(
        _ program: String,
        _ arguments: [String],
        _ settings: Settings,
        withErrors: Bool = false,
        patience: Duration,
        grace: Duration = .zero,
        killed: Duration = .seconds(10),
        started: (HelperProcess) -> Void = { _ in },
        take: (ArraySlice<UInt8>) -> Void
    ) throws(Failure) -> End {
        let command = [program] + arguments
        if let earlier = Self.started.withLock({ $0.first { $0.value == command }?.key }) {
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
        if !output.read(until: descriptor, by: .now + patience, take) {
            end.isLate = true
            if grace > .zero { process.kill(SIGTERM, leadsGroup: settings.leadsGroup) }
            if grace == .zero || !output.read(until: descriptor, by: .now + grace, take) {
                process.kill(leadsGroup: settings.leadsGroup)
                guard descriptor.hasEnded(by: .now + killed) else {
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

    /// Runs a program to its end, and returns its status with the beginning of its output. Cancelling the task kills
    /// it, after the grace period.
    ///
    /// - Parameter limit: the number of bytes to keep.
    /// - Throws: ``Failure`` as ``runToEnd(_:_:_:withErrors:patience:grace:killed:started:take:)``, which describes the
    ///   other parameters.
    @_spi(Extensions) public static func output(
        of program: String,
        _ arguments: [String],
        _ settings: Settings = Settings(),
        withErrors: Bool = true,
        limit: Int = 65_536,
        patience: Duration,
        grace: Duration = .zero,
        killed: Duration = .seconds(10)
    ) async throws(Failure) -> (status: Int32?, text: String) {
        let cancellation = Cancellation(grace: grace)
        let result = await withTaskCancellationHandler {
            await onSystemThread {
                var bytes: [UInt8] = []
                return Result { () throws(Failure) in
                    let end = try runToEnd(
                        program,
                        arguments,
                        settings,
                        withErrors: withErrors,
                        patience: patience,
                        grace: grace,
                        killed: killed,
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

    private func leaveUnended(_ command: [String]) {
        Self.started.withLock { $0[identifier] = command }
        let thread = QuietThread.start("helper") { [self] in _ = end() }
        // Without a thread, no code notices the end of the process. It stays uncollected and keeps its id, and its
        // command line would be refused for ever.
        if thread == nil { Self.started.withLock { $0[identifier] = .some(nil) } }
    }

    private func kill(_ signal: Int32 = SIGKILL, leadsGroup: Bool) {
        if leadsGroup { killGroup(signal) } else { kill(signal) }
    }

    /// Ends the process when its task is cancelled, also a process that starts after the cancellation.
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

    /// Reads until the process ends, and then the bytes that are already in the pipe. Returns whether the process has
    /// ended by `deadline`.
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
