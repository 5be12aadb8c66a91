/// Notifications as they arrive. For one loop at a time; a second one on the same sequence shares the elements with the first.
///
/// The observer behind it is removed when the last copy and iterator are gone, or ``cancel()`` is called.
public struct NotificationSequence<Element: Sendable>: AsyncSequence, Sendable {
    private let stream: AsyncStream<Element>
    private let continuation: AsyncStream<Element>.Continuation
    private let observation: NotificationObservation

    init(
        _ stream: AsyncStream<Element>,
        _ continuation: AsyncStream<Element>.Continuation,
        _ observation: NotificationObservation
    ) {
        self.stream = stream
        self.continuation = continuation
        self.observation = observation
    }

    /// How many notifications arrived here, and how many gave way to others.
    public var counts: DeliveryCounts { observation.counts }

    /// Removes the observer. A loop over the sequence gets what has arrived already and ends.
    public func cancel() {
        observation.cancel()
        continuation.finish()
    }

    /// An iterator; it keeps the observer in place.
    public func makeAsyncIterator() -> Iterator {
        Iterator(base: stream.makeAsyncIterator(), observation: observation)
    }

    /// Waits for one notification after the other.
    public struct Iterator: AsyncIteratorProtocol {
        private var base: AsyncStream<Element>.Iterator
        private let observation: NotificationObservation

        init(base: AsyncStream<Element>.Iterator, observation: NotificationObservation) {
            self.base = base
            self.observation = observation
        }

        /// The next notification; `nil` after ``NotificationSequence/cancel()``, or when the task is cancelled.
        public mutating func next(isolation: isolated (any Actor)?) async -> Element? {
            await base.next(isolation: isolation)
        }
    }
}

/// The way from a registration into a sequence. The stream is the buffer; the registration only counts.
struct NotificationPipe<Element: Sendable> {
    private let buffering: Buffering
    private let stream: AsyncStream<Element>
    private let continuation: AsyncStream<Element>.Continuation

    init(_ buffering: Buffering) {
        self.buffering = buffering
        let policy: AsyncStream<Element>.Continuation.BufferingPolicy =
            switch buffering.policy {
            case .coalescing: .bufferingNewest(1)
            case .newest(let limit): .bufferingNewest(limit)
            case .oldest(let limit): .bufferingOldest(limit)
            case .unbounded: .unbounded
            }
        (stream, continuation) = AsyncStream.makeStream(of: Element.self, bufferingPolicy: policy)
    }

    func registration(
        for center: BusCenter,
        _ suspensionBehavior: SuspensionBehavior = .deliverImmediately,
        _ convert: @escaping @Sendable (WireNotification) -> Element
    ) -> Registration {
        Registration(.immediate, buffering, suspensionBehavior, gate: center.router.gate) { [continuation] wire in
            if case .dropped = continuation.yield(convert(wire)) { .displacedAnother } else { .taken }
        }
    }

    func sequence(_ observation: NotificationObservation) -> NotificationSequence<Element> {
        // Weak, because the observation holds the registration, and that the continuation.
        continuation.onTermination = { [weak observation] _ in observation?.cancel() }
        return NotificationSequence(stream, continuation, observation)
    }
}
