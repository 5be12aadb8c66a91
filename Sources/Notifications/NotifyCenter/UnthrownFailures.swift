public import DBusTransport
import Glibc
import Synchronization

/// Takes the errors that no function can throw. Some come from functions that Apple declares without a way to report an error, such as
/// `CFNotificationCenterPostNotification`; others occur outside of a call, such as a match rule that a restarted bus refuses. While nobody
/// observes the errors, each becomes a line on standard error, unless a reader that does not keep up leaves no room for it.
public enum UnthrownFailures {
    /// One failed call.
    public struct Failure: Sendable, CustomStringConvertible {
        /// The function that was called, or the work that this library did by itself.
        public let function: String
        /// What happened. ``DBusError`` where the bus is concerned.
        public let error: any Error

        /// One line with both.
        public var description: String { "\(function): \(error)" }
    }

    /// Holds an observer of failures in place. Its `cancel()` removes the observer, and so does the end of its life: keep it for as long as
    /// the observer is to be called. It does not wait for a call under way on another thread.
    public typealias Observation = DBusTransport.Observation

    private struct Observers: Sendable {
        var byNumber: [UInt64: @Sendable (Failure) -> Void] = [:]
        var next: UInt64 = 0
    }

    private static let observers = PerProcess(Observers())

    /// Calls `observer` for each failure until the returned observation ends: on the thread of the failed call and before that returns, or, for a
    /// failure outside of a call, on the thread that finds it, most often the one that reads the bus: return soon. If there are several observers, all
    /// are called, in no order. The observers of a process are not called in its forked child.
    public static func observe(_ observer: @escaping @Sendable (Failure) -> Void) -> Observation {
        let number = observers.withLock { observers in
            defer { observers.next += 1 }
            observers.byNumber[observers.next] = observer
            return observers.next
        }
        return Observation {
            // Freed outside the lock: what it captures may end in a call that fails.
            let removed = observers.withLock { $0.byNumber.removeValue(forKey: number) }
            withExtendedLifetime(removed) {}
        }
    }

    /// Tells of a failure.
    package static func report(_ error: any Error, in function: String) {
        let failure = Failure(function: function, error: error)
        let observers = observers.withLock { Array($0.byNumber.values) }
        guard observers.isEmpty else {
            for observer in observers { observer(failure) }
            return
        }
        writeLine("\(failure)")
    }

    /// One thread at a time: two of them would share the room that one has found.
    private static let writing = PerProcess(())

    /// Writes a line to standard error and never waits, because this may be the thread that reads the bus, and whoever reads standard error may
    /// have stopped. A line that finds no room is dropped. One that a file or a terminal takes in part is not written again.
    private static func writeLine(_ line: String) {
        var bytes = Array("\(line)\n".utf8)
        // A pipe that takes anything takes PIPE_BUF bytes without waiting.
        let room = 4096
        if bytes.count > room { bytes.replaceSubrange((room - 1)..., with: [UInt8(ascii: "\n")]) }
        writing.withLock { _ in
            var look = pollfd(fd: STDERR_FILENO, events: Int16(POLLOUT), revents: 0)
            // Anything beside room means that nobody reads.
            guard poll(&look, 1, 0) == 1, look.revents == Int16(POLLOUT) else { return }
            _ = write(STDERR_FILENO, bytes, bytes.count)
        }
    }
}
