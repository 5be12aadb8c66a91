import DBusTransport
import Dispatch
import Synchronization

/// One observer, as the center keeps it: its handler, where that runs, and what waits for it.
final class Registration: Sendable {
    typealias Handler = @Sendable (WireNotification) -> Void

    /// How notifications come out.
    private enum Outlet: Sendable {
        /// The registration calls its handler.
        case calls(Delivery.Kind)
        /// Somebody calls ``takeNext()``, and is woken for it.
        case wakes(@Sendable () -> Void)
    }

    private struct State {
        var queue: DeliveryQueue<WireNotification>
        /// `nil` once the registration has ended. Otherwise nothing here would ever be freed: the observation keeps the registration,
        /// for its counts, and the handler may hold whoever holds the observation.
        var handler: Handler?
        var drainJob: DrainJob?
    }

    /// The job of a background delivery. Made once: as a block, it goes to the queue without being copied. In a struct, because the runtime
    /// crashes where it makes metadata for an optional block.
    private struct DrainJob: Sendable {
        /// The registration's own. The system starts a thread for each serial queue that has something to do, up to
        /// 255. The global queue, which tasks share, has no more threads than there are processors.
        let queue = DispatchQueue(label: "org.notifycenter.observer")
        let block: @convention(block) @Sendable () -> Void
    }

    let suspensionBehavior: SuspensionBehavior
    /// The place in the order of registration, which the router gives.
    let rank = Atomic<UInt64>(0)
    private let state: Locked<State>
    private let outlet: Outlet
    private let gate: DeliveryGate

    /// Calls `handler`.
    ///
    /// - Parameter gate: of the center that the registration is for.
    init(
        _ delivery: Delivery,
        _ buffering: Buffering,
        _ suspensionBehavior: SuspensionBehavior = .deliverImmediately,
        gate: DeliveryGate,
        _ handler: @escaping Handler
    ) {
        state = Locked(State(queue: DeliveryQueue(buffering), handler: handler))
        outlet = .calls(delivery.kind)
        self.suspensionBehavior = suspensionBehavior
        self.gate = gate
    }

    /// Calls `wake` when there is something for ``takeNext()``.
    init(
        _ buffering: Buffering,
        _ suspensionBehavior: SuspensionBehavior,
        gate: DeliveryGate,
        wake: @escaping @Sendable () -> Void
    ) {
        state = Locked(State(queue: DeliveryQueue(buffering)))
        outlet = .wakes(wake)
        self.suspensionBehavior = suspensionBehavior
        self.gate = gate
    }

    var counts: DeliveryCounts { state.withLock { $0.queue.counts } }

    /// How many notifications wait.
    var waitingCount: Int { state.withLock { $0.queue.count } }

    // MARK: On the reading thread

    /// Takes a notification that is to be delivered. It never waits, unless the handler runs right here.
    func offer(_ notification: WireNotification, number: UInt64) {
        if case .calls(.immediate) = outlet {
            // Liveness is asked for right before the call: an earlier observer of the same post may have removed this one
            // (CF-C3).
            let handler = state.withLock { state in
                state.queue.passThrough(number, below: gate.limit) ? state.handler : nil
            }
            if let handler { return handler(notification) }
        }
        deliverNext { $0.offer(notification, number: number, bytes: notification.bytes) }
    }

    /// Takes a notification that arrived during a suspension.
    func keep(_ notification: WireNotification, number: UInt64) {
        let bytes = notification.bytes
        state.withLock { state in
            switch suspensionBehavior {
            case .drop: state.queue.suppress()
            case .coalesce:
                state.queue.coalesce(notification, number: number, bytes: bytes, source: notification.source)
            case .hold, .deliverImmediately: state.queue.offer(notification, number: number, bytes: bytes)
            }
        }
    }

    /// Lets go of what waited because of a suspension.
    ///
    /// - Returns: the numbers for which the caller calls ``deliverNext(_:)``, once each. Those that already have a job are left out: a backlog
    ///   that is flushed time and again must not grow.
    func release() -> ArraySlice<UInt64> {
        state.withLock { state in
            let numbers = state.queue.release()
            return switch outlet {
            case .calls(.immediate): numbers[...]
            case .calls(.scheduled): numbers.suffix(state.queue.countWithoutJob)
            case .calls(.background), .calls(.executor), .wakes: numbers.prefix(1)
            }
        }
    }

    /// Sees to one delivery more.
    ///
    /// - Parameter change: what happens to the queue first, under the same lock.
    func deliverNext(_ change: (inout DeliveryQueue<WireNotification>) -> Void = { _ in }) {
        switch outlet {
        case .calls(.immediate):
            state.withLock { change(&$0.queue) }
            if let (notification, handler) = take({ $0.next(below: $1) }) { handler(notification) }
        case .wakes(let wake):
            state.withLock { change(&$0.queue) }
            wake()
        case .calls(.scheduled(let schedule)):
            // One job for each, not one for all, so that observers on one queue alternate post by post. A job that finds
            // the gate closed does nothing; the flush sends another.
            if ask(limit: .max, after: change) { schedule { self.deliverOne() } }
        case .calls(.background):
            if let job = askForDrain(after: change) { job.queue.async(execute: job.block) }
        case .calls(.executor(let executor)):
            if ask(limit: 1, after: change) { Task(executorPreference: executor) { self.drain() } }
        }
    }

    // MARK: On any thread

    /// The next notification that may be delivered, for an observer that takes by itself.
    func takeNext() -> WireNotification? { state.withLock { $0.queue.next(below: gate.limit) } }

    /// No call begins after this, except on a thread that has taken its notification already. The handler is freed here,
    /// outside the lock.
    func cancel() {
        let handler = state.withLock { state -> Handler? in
            state.queue.cancel()
            defer { state.handler = nil }
            return state.handler
        }
        withExtendedLifetime(handler) {}
    }

    private func ask(limit: Int, after change: (inout DeliveryQueue<WireNotification>) -> Void) -> Bool {
        state.withLock { state in
            change(&state.queue)
            return state.queue.ask(limit: limit)
        }
    }

    private func askForDrain(after change: (inout DeliveryQueue<WireNotification>) -> Void) -> DrainJob? {
        state.withLock { state in
            change(&state.queue)
            guard state.queue.ask(limit: 1) else { return nil }
            // Weak, because the registration holds the job. One that has ended has nothing to deliver.
            let job = state.drainJob ?? DrainJob { [weak self] in self?.drain() }
            state.drainJob = job
            return job
        }
    }

    /// The job of a ``Delivery/scheduled(_:)``.
    private func deliverOne() {
        let due = take { queue, limit in
            queue.endJob()
            return queue.next(below: limit)
        }
        if let (notification, handler) = due { handler(notification) }
    }

    /// The one job of a background delivery: delivers until nothing is left.
    private func drain() {
        func next() -> (WireNotification, Handler)? {
            take { queue, limit in
                let notification = queue.next(below: limit)
                if notification == nil { queue.endJob() }
                return notification
            }
        }
        while let (notification, handler) = next() { handler(notification) }
    }

    /// The next notification together with the handler, which is there as long as notifications are. The gate is read with the
    /// lock held: a flush opens it first and asks for a job then, so that either this one goes on or that one begins.
    private func take(
        _ next: @Sendable (inout DeliveryQueue<WireNotification>, UInt64) -> WireNotification?
    ) -> (WireNotification, Handler)? {
        state.withLock { state in
            guard let notification = next(&state.queue, gate.limit), let handler = state.handler else { return nil }
            return (notification, handler)
        }
    }
}
