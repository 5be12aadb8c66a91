import DBusTransport
import Dispatch
import Synchronization

/// What a handler did with a notification.
enum Handling {
    case taken
    /// It went into a buffer of the handler's own, where another one (or it itself) had to go.
    case displacedAnother
}

/// One observer: its handler, where it runs, and what waits for it.
final class Registration<Element: Sendable>: Sendable {
    private typealias Handler = @Sendable (Element) -> Handling

    private struct State {
        var queue: DeliveryQueue<Element>
        /// Gone with the registration's end, whoever still asks for its counts: it may hold its owner.
        var handler: Handler?
    }

    private let state: Locked<State>
    private let delivery: Delivery

    init(_ delivery: Delivery, _ buffering: Buffering, _ handler: @escaping @Sendable (Element) -> Handling) {
        state = Locked(State(queue: DeliveryQueue(buffering), handler: handler))
        self.delivery = delivery
    }

    var counts: DeliveryCounts { state.withLock { $0.queue.counts } }

    /// Takes a notification that arrived. It never waits, unless the handler runs right here.
    func offer(_ element: Element) {
        if case .immediate = delivery.kind {
            // Liveness is asked for right before the call: an earlier observer of the same post may have removed this one
            // (CF-C3).
            let handler = state.withLock { $0.queue.passThrough() ? $0.handler : nil }
            if let handler { call(handler, element) }
            return
        }
        guard case .queued = state.withLock({ $0.queue.offer(element) }) else { return }
        switch delivery.kind {
        case .immediate: break
        case .queue(let target):
            // One job for each, not one drain for all, so that observers on one queue alternate post by post.
            target.async { self.deliverOne() }
        case .background:
            guard state.withLock({ $0.queue.beginDrain() }) else { return }
            DispatchQueue.global().async { self.drain() }
        case .executor(let executor):
            guard state.withLock({ $0.queue.beginDrain() }) else { return }
            Task(executorPreference: executor) { self.drain() }
        }
    }

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

    private func call(_ handler: Handler, _ element: Element) {
        if handler(element) == .displacedAnother { state.withLock { $0.queue.countDisplaced() } }
    }

    private func deliverOne() {
        if let (element, handler) = take({ $0.next() }) { call(handler, element) }
    }

    private func drain() {
        while let (element, handler) = take({ $0.nextOfDrain() }) { call(handler, element) }
    }

    /// The next element together with the handler, which is there as long as elements are.
    private func take(_ next: @Sendable (inout DeliveryQueue<Element>) -> Element?) -> (Element, Handler)? {
        state.withLock { state in
            guard let element = next(&state.queue), let handler = state.handler else { return nil }
            return (element, handler)
        }
    }
}
