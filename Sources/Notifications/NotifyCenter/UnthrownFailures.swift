public import DBusTransport
import Glibc
import Synchronization

/// Where errors go that no function can throw: those of functions that Apple declares without a way to report one, such as
/// `CFNotificationCenterPostNotification`, and those that occur while nothing is called, such as a match rule that a restarted bus refuses.
/// While nobody observes them, each is a line on standard error.
public enum UnthrownFailures {
    /// One failed call.
    public struct Failure: Sendable, CustomStringConvertible {
        /// The function that was called, or what this library did by itself.
        public let function: String
        /// What happened. ``DBusError`` where the bus is concerned.
        public let error: any Error

        /// One line with both.
        public var description: String { "\(function): \(error)" }
    }

    /// An observer of failures in place. Its end of life, or its `cancel()`, removes it: keep it as long as the observer is to be told. A
    /// call under way on another thread is not waited for.
    public typealias Observation = DBusTransport.Observation

    private struct Observers {
        var byNumber: [UInt64: @Sendable (Failure) -> Void] = [:]
        var next: UInt64 = 0
    }

    private static let observers = Locked(Observers())

    /// Has `observer` called for each failure, on the thread of the failed call and before that returns, until the returned
    /// observation ends. Several observers are all called, in no order.
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
        var line = "\(failure)\n"
        line.withUTF8 { _ = write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}
