/// Notifications as they arrive. For one loop at a time; a second one on the same sequence shares the elements with the first.
///
/// Notifications that the loop has not taken wait, within the bounds of the sequence's ``Buffering``; while the center is suspended, they wait
/// too. The observer is removed with the last copy and iterator, or by ``cancel()``.
public struct NotificationSequence<Element: Sendable>: AsyncSequence, Sendable {
    private let inlet: NotificationInlet
    private let observation: NotificationObservation
    private let convert: @Sendable (WireNotification) -> Element

    init(
        _ inlet: NotificationInlet,
        _ observation: NotificationObservation,
        _ convert: @escaping @Sendable (WireNotification) -> Element
    ) {
        self.inlet = inlet
        self.observation = observation
        self.convert = convert
        // Weak: the observation holds the registration, which holds the stream, which holds this handler.
        inlet.onEnd { [weak observation] in observation?.cancel() }
    }

    /// How many notifications the loop took, and how many were dropped or merged.
    public var counts: DeliveryCounts { observation.counts }

    /// Removes the observer, and drops the notifications that wait. A loop over the sequence ends.
    public func cancel() {
        observation.cancel()
        inlet.end()
    }

    /// An iterator; it keeps the observer in place.
    public func makeAsyncIterator() -> Iterator {
        Iterator(wakes: inlet.wakes.makeAsyncIterator(), inlet: inlet, observation: observation, convert: convert)
    }

    /// Waits for one notification after the other.
    public struct Iterator: AsyncIteratorProtocol {
        fileprivate var wakes: AsyncStream<Void>.Iterator
        fileprivate let inlet: NotificationInlet
        fileprivate let observation: NotificationObservation
        fileprivate let convert: @Sendable (WireNotification) -> Element

        /// The next notification; `nil` after ``NotificationSequence/cancel()``, or when the task is cancelled.
        public mutating func next(isolation: isolated (any Actor)?) async -> Element? {
            while true {
                // A cancelled task that need not wait would never hear of it.
                if Task.isCancelled { observation.cancel() }
                if let notification = inlet.take() { return convert(notification) }
                guard await wakes.next(isolation: isolation) != nil else { return nil }
            }
        }
    }
}

/// Where a sequence takes its notifications from: they wait in a registration, under the rules of all others, and a stream that holds at
/// most one wake-up tells that there are some.
struct NotificationInlet: Sendable {
    let registration: Registration
    let wakes: AsyncStream<Void>
    private let continuation: AsyncStream<Void>.Continuation

    init(_ buffering: Buffering, _ suspensionBehavior: SuspensionBehavior = .deliverImmediately, gate: DeliveryGate) {
        let (wakes, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        registration = Registration(buffering, suspensionBehavior, gate: gate) { continuation.yield() }
        (self.wakes, self.continuation) = (wakes, continuation)
    }

    /// The next notification that may be delivered.
    func take() -> WireNotification? {
        guard let notification = registration.takeNext() else { return nil }
        // For another loop on the same sequence, which may have slept through the one wake-up for both.
        if registration.waitingCount > 0 { continuation.yield() }
        return notification
    }

    func end() { continuation.finish() }

    /// Calls `handler` after ``end()``, or when the task that waits is cancelled.
    func onEnd(_ handler: @escaping @Sendable () -> Void) { continuation.onTermination = { _ in handler() } }
}
