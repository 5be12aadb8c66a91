import DBusTransport
import NotifyCenter
import Synchronization

/// An observer whose notifications wait in a stream, the oldest giving way to the newest.
final class BufferedObservation<Element: Sendable>: Sendable {
    /// What waits. It ends with the observation, and with the task that iterates.
    let stream: AsyncStream<Element>
    private let continuation: AsyncStream<Element>.Continuation
    private let registration = CallbackRegistration()
    private let dropped = Counter()

    /// Registers; in force on return (CF-A11).
    ///
    /// - Parameters:
    ///   - limit: how many may wait; at least 1.
    ///   - convert: what waits for a notification; `nil` for one that is not wanted. Called on the thread that reads the bus.
    init(
        _ center: DistributedNotifyCenter,
        _ name: NotificationName?,
        object: String?,
        limit: Int,
        _ convert: @escaping @Sendable (DistributedNotification) -> Element?
    ) throws(DBusError) {
        (stream, continuation) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(max(1, limit)))
        registration.begin(
            try center.observe(name, object: object, delivery: .immediate) { [continuation, dropped] notification in
                guard let element = convert(notification) else { return }
                if case .dropped = continuation.yield(element) { dropped.increment() }
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

/// A number that goes up.
final class Counter: Sendable {
    private let count = Locked<UInt64>(0)

    var value: UInt64 { count.withLock { $0 } }

    func increment() { count.withLock { $0 += 1 } }
}
