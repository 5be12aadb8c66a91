package import DBusTransport
import FoundationEssentials
import Glibc
import Synchronization

/// A program that this process has started. Until its end is collected, no other process has its id.
package final class HelperProcess: Sendable {
    /// A program that does not start, or that fails.
    package struct Failure: Error, CustomStringConvertible {
        package let description: String
        /// The same, without the program's name at its beginning.
        package let reason: String

        /// - Parameter reason: `nil` where the description names no program.
        package init(_ description: String, reason: String? = nil) {
            self.description = description
            self.reason = reason ?? description
        }
    }

    /// How a program is started; as it stands, with nothing of this process but the variables.
    package struct Settings: Sendable {
        /// All of its variables.
        package var environment = ProcessEnvironment.isIgnored ? [:] : ProcessInfo.processInfo.environment
        /// Where its standard output goes.
        package var output = ProgramStart.Descriptor.nothing
        /// Where its standard error goes.
        package var errors = ProgramStart.Descriptor.nothing
        /// What it gets as its descriptor 3; `nil`: none.
        package var third: CInt?
        /// Whether it is in a process group of its own, so that it can be ended with its children, and the terminal's signals do not reach it.
        package var leadsGroup = false

        package init() {}
    }

    /// The process id.
    package let identifier: Int32
    private let isCollected = Locked(false)
    private static let started = Locked<Set<Int32>>([])

    /// The processes that this one has started and not yet collected; other children of it were adopted.
    package static var own: Set<Int32> { started.withLock { $0 } }

    /// Starts the program, which is looked up in `PATH`.
    ///
    /// - Throws: ``Failure``.
    package init(_ program: String, _ arguments: [String], _ settings: Settings = Settings()) throws(Failure) {
        identifier = try Self.started.withLock { started throws(Failure) in
            do throws(ProgramStart.Failure) {
                // Under the lock, so that nobody takes the child for an adopted one.
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

    /// Sends a signal, and does nothing once its end is collected.
    package func kill(_ signal: Int32 = SIGKILL) {
        isCollected.withLock { if !$0 { _ = Glibc.kill(identifier, signal) } }
    }

    /// Sends a signal to its process group, which it has to lead.
    package func killGroup(_ signal: Int32) {
        isCollected.withLock { if !$0 { _ = Glibc.kill(-identifier, signal) } }
    }

    /// Waits for its end on this thread, and collects its status. To be called once.
    ///
    /// - Returns: its exit status, or 128 and the signal; `nil` if somebody else in this process has collected it.
    package func end() -> Int32? {
        // Waits first and collects under the lock, so that no signal reaches another process of the same id.
        ProgramStart.waitForEnd(of: identifier)
        return isCollected.withLock { isCollected in
            isCollected = true
            defer { _ = Self.started.withLock { $0.remove(identifier) } }
            return ProgramStart.collect(identifier)
        }
    }

    /// Like ``end()``, without holding a thread of Swift's. A task that is cancelled kills the program.
    package func waitUntilEnd() async -> Int32? {
        await withTaskCancellationHandler {
            await withCheckedContinuation { (continuation: CheckedContinuation<Int32?, Never>) in
                let wait: @Sendable () -> Void = { continuation.resume(returning: self.end()) }
                // If the system grants no thread, one of the shared threads waits.
                if QuietThread.start("helper", wait) == nil { Task.detached { wait() } }
            }
        } onCancel: {
            kill()
        }
    }

    /// Runs a program to its end. A task that is cancelled kills it.
    ///
    /// - Throws: ``Failure`` if it does not start, or ends with another status than 0.
    package static func run(_ program: String, _ arguments: [String]) async throws {
        let status = await (try HelperProcess(program, arguments)).waitUntilEnd()
        guard let status, status != 0 else { return }
        throw Failure("\(program) ended with status \(status)")
    }
}
