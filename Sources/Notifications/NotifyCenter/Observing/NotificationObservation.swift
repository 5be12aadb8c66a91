import DBusTransport
import Synchronization

/// An observer in place. Its end of life, or ``cancel()``, removes it: keep it as long as notifications are wanted.
public final class NotificationObservation: Sendable {
    private let remove: Locked<(@Sendable () -> Void)?>
    private let count: @Sendable () -> DeliveryCounts

    init(counts: @escaping @Sendable () -> DeliveryCounts, remove: @escaping @Sendable () -> Void) {
        self.remove = Locked(remove)
        count = counts
    }

    deinit { cancel() }

    /// Removes the observer, from any thread, its own handler included. No call begins afterwards, and what waited for it is
    /// dropped; a call under way on another thread is not waited for (CF-R7). Doing it twice is harmless (CF-R5).
    public func cancel() {
        remove.withLock { remove -> (@Sendable () -> Void)? in
            defer { remove = nil }
            return remove
        }?()
    }

    /// How many notifications this observer got, and how many it did not.
    public var counts: DeliveryCounts { count() }
}
