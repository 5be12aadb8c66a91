import Basics
public import DBus
import Glibc
import Synchronization

/// Takes the errors that no function can throw. Some come from functions that Apple declares without a way to report an
/// error, such as `CFNotificationCenterPostNotification`. Others occur outside of a call, such as a match rule that a
/// restarted bus refuses. If there are no observers, each error becomes a line on standard error; it is lost if the
/// reader of standard error has fallen behind and left no room.
public enum UnthrownFailures {
    /// One failed call.
    public struct Failure: Sendable, CustomStringConvertible {
        /// The function that was called, or the background work of this library.
        public let function: String
        /// The error; a ``DBusError`` for failures of the bus.
        public let error: any Error

        /// The function and the error in one line.
        public var description: String { "\(function): \(error)" }
    }

    /// Keeps an observer of failures in place. `cancel()` removes the observer, and so does the observation's deinit:
    /// keep it while the observer should be called. `cancel()` does not wait for a call in progress on another thread.
    public typealias Observation = DBus.Observation

    private struct Observers: Sendable {
        var byNumber: [UInt64: @Sendable (Failure) -> Void] = [:]
        var next: UInt64 = 0
    }

    private static let observers = PerProcess(Observers())

    /// Calls `observer` for each failure until the returned observation ends.
    ///
    /// If a call failed, the observer runs on the thread of that call, before it returns. A failure outside of a call
    /// is reported on the thread that finds it, usually the thread that reads the bus: return soon. Several observers
    /// are called in no particular order. A forked child does not call the observers of its parent.
    public static func observe(_ observer: @escaping @Sendable (Failure) -> Void) -> Observation {
        let number = observers.withLock { observers in
            defer { observers.next += 1 }
            observers.byNumber[observers.next] = observer
            return observers.next
        }
        return Observation {
            // Freed outside the lock: the deinit of a captured value may make a call that fails.
            let removed = observers.withLock { $0.byNumber.removeValue(forKey: number) }
            withExtendedLifetime(removed) {}
        }
    }

    /// Reports a failure to the observers, or to standard error if there are none.
    package static func report(_ error: any Error, in function: String) {
        let failure = Failure(function: function, error: error)
        let observers = observers.withLock { Array($0.byNumber.values) }
        guard observers.isEmpty else {
            for observer in observers { observer(failure) }
            return
        }
        writeLine("\(failure)")
    }

    /// One thread at a time: two threads would both use the room that one of them has found.
    private static let writing = PerProcess(())

    /// Writes a line to standard error without ever waiting, because this may be the thread that reads the bus, and the
    /// reader of standard error may have stopped. If there is no room, the line is dropped. If a file or a terminal
    /// takes only a part, the rest is not written.
    private static func writeLine(_ line: String) {
        var bytes = Array("\(line)\n".utf8)
        // A pipe that polls as writable takes PIPE_BUF bytes without blocking.
        let room = 4096
        if bytes.count > room { bytes.replaceSubrange((room - 1)..., with: [UInt8(ascii: "\n")]) }
        writing.withLock { _ in
            var look = pollfd(fd: STDERR_FILENO, events: Int16(POLLOUT), revents: 0)
            // Any flag other than room means that standard error has no reader.
            guard poll(&look, 1, 0) == 1, look.revents == Int16(POLLOUT) else { return }
            _ = write(STDERR_FILENO, bytes, bytes.count)
        }
    }
}
