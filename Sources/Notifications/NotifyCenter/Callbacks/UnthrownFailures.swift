import DBusTransport
import Glibc
import Synchronization

/// Where errors go that occur in a function which Apple declares without a way to report one, such as
/// `CFNotificationCenterPostNotification`. While nobody observes them, each is a line on standard error.
public enum UnthrownFailures {
    /// One failed call.
    public struct Failure: Sendable, CustomStringConvertible {
        /// The function that was called.
        public let function: String
        /// What happened. ``DBusError`` where the bus is concerned.
        public let error: any Error

        /// One line with both.
        public var description: String { "\(function): \(error)" }
    }

    /// An observer in place. Its end of life, or ``cancel()``, removes it: keep it as long as it is to be told.
    public final class Observation: Sendable {
        private let number: UInt64

        fileprivate init(number: UInt64) { self.number = number }

        deinit { cancel() }

        /// Removes the observer. Doing it twice is harmless; a call under way on another thread is not waited for.
        public func cancel() {
            // Freed outside the lock: what it captures may end in a call that fails.
            let removed = observers.withLock { $0.byNumber.removeValue(forKey: number) }
            withExtendedLifetime(removed) {}
        }
    }

    private struct Observers {
        var byNumber: [UInt64: @Sendable (Failure) -> Void] = [:]
        var next: UInt64 = 0
    }

    private static let observers = Locked(Observers())

    /// Has `observer` called for each failure, on the thread of the failed call and before that returns, until the returned
    /// observation ends. Several observers are all called, in no order.
    public static func observe(_ observer: @escaping @Sendable (Failure) -> Void) -> Observation {
        observers.withLock { observers in
            defer { observers.next += 1 }
            observers.byNumber[observers.next] = observer
            return Observation(number: observers.next)
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
