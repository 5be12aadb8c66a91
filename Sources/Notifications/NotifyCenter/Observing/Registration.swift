import DBusTransport
import Dispatch
import Synchronization

/// One observer: its handler, where it runs, and what waits for it.
final class Registration: Sendable {
    typealias Handler = @Sendable (WireNotification) -> Void

    private struct State {
        var queue: DeliveryQueue<WireNotification>
        /// Gone with the registration's end, whoever still asks for its counts: it may hold its owner.
        var handler: Handler?
    }

    let suspensionBehavior: SuspensionBehavior
    private let state: Locked<State>
    private let delivery: Delivery
    private let gate: DeliveryGate

    /// - Parameter gate: of the center that the registration is for.
    init(
        _ delivery: Delivery,
        _ buffering: Buffering,
        _ suspensionBehavior: SuspensionBehavior = .deliverImmediately,
        gate: DeliveryGate,
        _ handler: @escaping Handler
    ) {
        state = Locked(State(queue: DeliveryQueue(buffering), handler: handler))
        self.delivery = delivery
        self.suspensionBehavior = suspensionBehavior
        self.gate = gate
    }

    var counts: DeliveryCounts { state.withLock { $0.queue.counts } }

    /// How many notifications wait.
    var waitingCount: Int { state.withLock { $0.queue.count } }

    // MARK: On the reading thread

    /// Takes a notification that is to be delivered. It never waits, unless the handler runs right here.
    func offer(_ notification: WireNotification, number: UInt64) {
        if case .immediate = delivery.kind {
            // Liveness is asked for right before the call: an earlier observer of the same post may have removed this one
            // (CF-C3).
            let handler = state.withLock { state in
                state.queue.passThrough(number, below: gate.limit) ? state.handler : nil
            }
            if let handler { return handler(notification) }
        }
        if case .queued = state.withLock({ $0.queue.offer(notification, number: number) }) { deliverNext() }
    }

    /// Takes a notification that arrived during a suspension.
    func keep(_ notification: WireNotification, number: UInt64) {
        state.withLock { state in
            switch suspensionBehavior {
            case .drop: state.queue.suppress()
            case .coalesce: state.queue.coalesce(notification, number: number, source: notification.source)
            case .hold, .deliverImmediately: _ = state.queue.offer(notification, number: number)
            }
        }
    }

    /// What waits of a suspension is on its way from now on.
    ///
    /// - Returns: the numbers of those that are due a ``deliverNext()`` each. Not of those that have theirs under way: a backlog that
    ///   is flushed time and again must not grow.
    func release() -> ArraySlice<UInt64> {
        state.withLock { state in
            let numbers = state.queue.release()
            return switch delivery.kind {
            case .immediate: numbers[...]
            case .scheduled: numbers.suffix(state.queue.unaskedCount)
            case .background, .executor, .taken: numbers.prefix(1)
            }
        }
    }

    /// Sees to one delivery more.
    func deliverNext() {
        switch delivery.kind {
        case .immediate: deliverOne()
        case .taken(let wake): wake()
        case .scheduled(let schedule):
            // One job for each, not one drain for all, so that observers on one queue alternate post by post. A job that finds
            // the gate closed does nothing; the flush sends another.
            state.withLock { $0.queue.ask() }
            schedule { self.deliverAsked() }
        case .background:
            guard state.withLock({ $0.queue.beginDrain() }) else { return }
            DispatchQueue.global().async { self.drain() }
        case .executor(let executor):
            guard state.withLock({ $0.queue.beginDrain() }) else { return }
            Task(executorPreference: executor) { self.drain() }
        }
    }

    // MARK: Anywhere

    /// The next notification that may be delivered, for an observer that takes by itself.
    func takeNext() -> WireNotification? { take({ $0.next(below: $1) })?.0 }

    /// No call begins after this, but for one that is at this moment about to on another thread. The handler is freed here,
    /// outside the lock.
    func cancel() {
        let handler = state.withLock { state -> Handler? in
            state.queue.cancel()
            defer { state.handler = nil }
            return state.handler
        }
        withExtendedLifetime(handler) {}
    }

    private func deliverOne() {
        if let (notification, handler) = take({ $0.next(below: $1) }) { handler(notification) }
    }

    private func deliverAsked() {
        if let (notification, handler) = take({ $0.nextAsked(below: $1) }) { handler(notification) }
    }

    private func drain() {
        while let (notification, handler) = take({ $0.nextOfDrain(below: $1) }) { handler(notification) }
    }

    /// The next notification together with the handler, which is there as long as notifications are. The gate is read with the
    /// lock held: a flush opens it first and begins a drain then, so that either this one goes on or that one begins.
    private func take(
        _ next: @Sendable (inout DeliveryQueue<WireNotification>, UInt64) -> WireNotification?
    ) -> (WireNotification, Handler)? {
        state.withLock { state in
            guard let notification = next(&state.queue, gate.limit), let handler = state.handler else { return nil }
            return (notification, handler)
        }
    }
}
