public import Basics
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
    private static let started = Locked<Set<Int32>>([])

    /// The processes that this one has started and not yet collected. Its other children were adopted.
    @_spi(Extensions) public static var own: Set<Int32> { started.withLock { $0 } }

    /// Starts the program, which is looked up in `PATH`.
    ///
    /// - Throws: ``Failure``.
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
                started.insert(identifier)
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

    /// Waits on this thread until the program ends, and collects its status. Call it once.
    ///
    /// - Returns: the exit status, or 128 plus the signal; `nil` if other code in this process has collected the
    ///   status.
    @_spi(Extensions) public func end() -> Int32? {
        // Wait first and collect under the lock, so that no signal reaches a different process with the same id.
        ProgramStart.waitForEnd(of: identifier)
        return isCollected.withLock { isCollected in
            isCollected = true
            defer { _ = Self.started.withLock { $0.remove(identifier) } }
            return ProgramStart.collect(identifier)
        }
    }

    /// Like ``end()``, without blocking a thread of Swift's pool. Cancelling the task kills the program.
    @_spi(Extensions) public func waitUntilEnd() async -> Int32? {
        await withTaskCancellationHandler {
            await withCheckedContinuation { (continuation: CheckedContinuation<Int32?, Never>) in
                let wait: @Sendable () -> Void = { continuation.resume(returning: self.end()) }
                // If the system grants no thread, a thread of the pool waits.
                if QuietThread.start("helper", wait) == nil { Task.detached { wait() } }
            }
        } onCancel: {
            kill()
        }
    }

    /// Runs a program to its end. Cancelling the task kills it.
    ///
    /// - Throws: ``Failure`` if it does not start, or ends with a status other than 0.
    @_spi(Extensions) public static func run(_ program: String, _ arguments: [String]) async throws {
        let status = await (try HelperProcess(program, arguments)).waitUntilEnd()
        guard let status, status != 0 else { return }
        throw Failure("\(program) ended with status \(status)")
    }
}
