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
    private let queue: Locked<DeliveryQueue<Element>>
    private let delivery: Delivery
    private let handler: @Sendable (Element) -> Handling

    init(_ delivery: Delivery, _ buffering: Buffering, _ handler: @escaping @Sendable (Element) -> Handling) {
        queue = Locked(DeliveryQueue(buffering))
        self.delivery = delivery
        self.handler = handler
    }

    var counts: DeliveryCounts { queue.withLock { $0.counts } }

    /// Takes a notification that arrived. It never waits, unless the handler runs right here.
    func offer(_ element: Element) {
        if case .immediate = delivery.kind {
            // Liveness is asked for right before the call: an earlier observer of the same post may have removed this one
            // (CF-C3).
            if queue.withLock({ $0.passThrough() }) { handle(element) }
            return
        }
        guard case .queued = queue.withLock({ $0.offer(element) }) else { return }
        switch delivery.kind {
        case .immediate: break
        case .queue(let target):
            // One job for each, not one drain for all, so that observers on one queue alternate post by post.
            target.async { self.deliverOne() }
        case .background:
            guard queue.withLock({ $0.beginDrain() }) else { return }
            DispatchQueue.global().async { self.drain() }
        case .executor(let executor):
            guard queue.withLock({ $0.beginDrain() }) else { return }
            Task(executorPreference: executor) { self.drain() }
        }
    }

    /// No call begins after this, but for one that is at this moment about to on another thread.
    func cancel() { queue.withLock { $0.cancel() } }

    private func handle(_ element: Element) {
        if handler(element) == .displacedAnother { queue.withLock { $0.countDisplaced() } }
    }

    private func deliverOne() {
        if let element = queue.withLock({ $0.next() }) { handle(element) }
    }

    private func drain() {
        while let element = queue.withLock({ $0.nextOfDrain() }) { handle(element) }
    }
}
