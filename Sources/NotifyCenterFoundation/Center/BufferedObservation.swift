import DBusTransport
import NotifyCenter

/// An observer whose notifications wait in a stream, the oldest giving way to the newest.
final class BufferedObservation: Sendable {
    /// What waits. It ends with the observation, and with the task that iterates.
    let stream: AsyncStream<DistributedNotification>
    private let continuation: AsyncStream<DistributedNotification>.Continuation
    private let registration = CallbackRegistration()
    private let dropped = Counter()

    /// Registers; in force on return (CF-A11).
    ///
    /// - Parameter limit: how many may wait; at least 1.
    init(
        _ center: DistributedNotifyCenter,
        _ name: NotificationName?,
        object: String?,
        limit: Int
    ) throws(DBusError) {
        (stream, continuation) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(max(1, limit)))
        registration.begin(
            try center.observe(name, object: object, delivery: .immediate) { [continuation, dropped] notification in
                if case .dropped = continuation.yield(notification) { dropped.increment() }
            }
        )
        // The registration alone, because the observation holds the continuation.
        continuation.onTermination = { [registration] _ in registration.remove() }
    }

    deinit { end() }

    /// Whether it was not ended yet.
    var isLive: Bool { registration.isLive }

    /// How many gave way to others.
    var droppedCount: UInt64 { dropped.value }

    /// Removes the observer. The stream ends after what waits in it.
    func end() {
        registration.remove()
        continuation.finish()
    }
}
