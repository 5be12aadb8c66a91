import Basics
import DBus
import Dispatch
import Synchronization

/// An observer in the center's form: the handler, the place where it runs, and the notifications that wait for it.
final class Registration: Sendable {
    typealias Handler = @Sendable (WireNotification) -> Void

    /// The way in which notifications leave the registration.
    private enum Outlet: Sendable {
        /// The registration calls its handler.
        case calls(Delivery.Kind)
        /// The owner calls ``takeNext()``, and is woken for it.
        case wakes(@Sendable () -> Void)
    }

    private struct State {
        var queue: DeliveryQueue<WireNotification>
        /// `nil` once the registration has ended. This breaks a reference cycle: the observation keeps the registration
        /// for its counts, and the handler may hold the observation's owner.
        var handler: Handler?
        var drainJob: DrainJob?
    }

    /// The job of a background delivery. Made once: as a block, it goes to the queue without being copied. It is in a
    /// struct, because the runtime crashes when it makes metadata for an optional block.
    private struct DrainJob: Sendable {
        /// A queue per registration: the system starts a thread for each serial queue that has work, up to 255. The
        /// global queue, which tasks share, is limited to one thread per processor.
        let queue = DispatchQueue(label: "org.notifycenter.observer")
        let block: @convention(block) @Sendable () -> Void
    }

    let suspensionBehavior: SuspensionBehavior
    /// The rank in the order of registration, which the router assigns.
    let rank = Atomic<UInt64>(0)
    private let state: Locked<State>
    private let outlet: Outlet
    private let gate: DeliveryGate

    /// Creates a registration that calls `handler`.
    ///
    /// - Parameter gate: the gate of the center that the registration is for.
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

    /// Creates a registration that calls `wake` when ``takeNext()`` has something to return.
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

    var waitingCount: Int { state.withLock { $0.queue.count } }

    // MARK: On the reading thread

    /// Takes a notification for delivery. Never blocks, unless the handler runs on this thread.
    func offer(_ notification: WireNotification, number: UInt64) {
        if case .calls(.immediate) = outlet {
            // Checked right before the call: an earlier observer of the same post may have removed this one (CF-C3).
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

    /// Releases the notifications that waited because of a suspension.
    ///
    /// - Returns: the numbers for which the caller calls ``deliverNext(_:)`` once each. Notifications that already have
    ///   a job are left out: a backlog that is flushed repeatedly must not grow.
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

    /// Starts one more delivery.
    ///
    /// - Parameter change: a change of the queue that is made first, under the same lock.
    func deliverNext(_ change: (inout DeliveryQueue<WireNotification>) -> Void = { _ in }) {
        switch outlet {
        case .calls(.immediate):
            state.withLock { change(&$0.queue) }
            if let (notification, handler) = take({ $0.next(below: $1) }) { handler(notification) }
        case .wakes(let wake):
            state.withLock { change(&$0.queue) }
            wake()
        case .calls(.scheduled(let schedule)):
            // One job per notification, so that observers on one queue alternate post by post. A job that finds the
            // gate closed does nothing; the flush sends another.
            if ask(limit: .max, after: change) { schedule { self.deliverOne() } }
        case .calls(.background):
            if let job = askForDrain(after: change) { job.queue.async(execute: job.block) }
        case .calls(.executor(let executor)):
            if ask(limit: 1, after: change) { Task(executorPreference: executor) { self.drain() } }
        }
    }

    // MARK: On any thread

    /// Returns the next notification that may be delivered, for an observer that takes notifications itself.
    func takeNext() -> WireNotification? { state.withLock { $0.queue.next(below: gate.limit) } }

    /// Ends the registration. No call begins after this, except on a thread that has already taken its notification.
    /// The handler is freed here, outside the lock.
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
            // Weak, because the registration holds the job. A registration that has ended has nothing to deliver.
            let job = state.drainJob ?? DrainJob { [weak self] in self?.drain() }
            state.drainJob = job
            return job
        }
    }

    private func deliverOne() {
        let due = take { queue, limit in
            queue.endJob()
            return queue.next(below: limit)
        }
        if let (notification, handler) = due { handler(notification) }
    }

    /// The single job of a background delivery: delivers until the queue is empty.
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

    /// Takes the next notification and the handler, which exists while there are notifications. The gate is read under
    /// the lock. A flush first opens the gate and then asks for a job, so either this job continues or the new one
    /// begins.
    private func take(
        _ next: @Sendable (inout DeliveryQueue<WireNotification>, UInt64) -> WireNotification?
    ) -> (WireNotification, Handler)? {
        state.withLock { state in
            guard let notification = next(&state.queue, gate.limit), let handler = state.handler else { return nil }
            return (notification, handler)
        }
    }
}
