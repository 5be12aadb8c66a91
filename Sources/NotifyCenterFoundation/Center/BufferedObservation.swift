import DBusTransport
import NotifyCenter
import Synchronization

/// An observer whose notifications wait in a stream, the oldest giving way to the newest.
final class BufferedObservation: Sendable {
    /// What waits. It ends with the observation, and with the task that iterates.
    let stream: AsyncStream<DistributedNotification>
    private let continuation: AsyncStream<DistributedNotification>.Continuation
    private let observation: NotificationObservation
    private let dropped: Counter
    private let hasEnded = Locked(false)

    /// Registers; in force on return (CF-A11).
    ///
    /// - Parameter limit: how many may wait; at least 1.
    init(
        _ center: DistributedNotifyCenter,
        _ name: NotificationName?,
        object: String?,
        limit: Int
    ) throws(DBusError) {
        let dropped = Counter()
        let (stream, continuation) = AsyncStream.makeStream(
            of: DistributedNotification.self,
            bufferingPolicy: .bufferingNewest(max(1, limit))
        )
        observation = try center.observe(name, object: object, delivery: .immediate) { notification in
            if case .dropped = continuation.yield(notification) { dropped.increment() }
        }
        (self.dropped, self.stream, self.continuation) = (dropped, stream, continuation)
        // Weak, because the observation holds the handler, and that the continuation.
        continuation.onTermination = { [weak observation] _ in observation?.cancel() }
    }

    deinit { end() }

    /// Whether ``end()`` was not called yet.
    var isLive: Bool { hasEnded.withLock { !$0 } }

    /// How many gave way to others, in the stream and before, while the center was suspended.
    var droppedCount: UInt64 { dropped.value + observation.counts.dropped }

    /// Removes the observer. The stream ends after what waits in it.
    func end() {
        hasEnded.withLock { $0 = true }
        observation.cancel()
        continuation.finish()
    }
}
