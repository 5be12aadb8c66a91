import DBusTransport
import Glibc
import Synchronization

/// Where errors go that occur in a function which Apple declares without a way to report one, such as
/// `CFNotificationCenterPostNotification`. Without a handler, each is a line on standard error.
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

    private static let handler = Locked<(@Sendable (Failure) -> Void)?>(nil)

    /// Has `handler` called for each failure, on the thread of the failed call and before that returns, in place of the line on
    /// standard error; `nil` brings that back.
    public static func setHandler(_ handler: (@Sendable (Failure) -> Void)?) {
        let before = self.handler.withLock { current in
            defer { current = handler }
            return current
        }
        withExtendedLifetime(before) {}
    }

    /// Tells of a failure.
    package static func report(_ error: any Error, in function: String) {
        let failure = Failure(function: function, error: error)
        if let handler = handler.withLock({ $0 }) { return handler(failure) }
        let line = "\(failure)\n"
        _ = line.utf8.withContiguousStorageIfAvailable { write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}
