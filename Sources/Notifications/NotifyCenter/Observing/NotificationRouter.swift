import DBusTransport
import Synchronization

/// Brings an arrived notification to its observers, now or later. Pure structs decide (``ObserverRegistry``, ``Suspension``,
/// ``DeliveryQueue``); this holds them, and hands over outside of its lock.
///
/// ``receive(_:)`` and ``flush()`` are called on the reading thread alone, so that what they hand over keeps its order.
final class NotificationRouter: Sendable {
    typealias Registry = ObserverRegistry<NotificationObject, Registration>

    private struct State {
        var registry = Registry()
        var suspension = Suspension()
        var received: UInt64 = 0
        /// Of registrations that have ended.
        var endedCounts = DeliveryCounts()
        /// Registrations for which something waits that no ``release()`` has let go of; `nil` where any may be among them.
        var holders: [ObjectIdentifier: Registration]?

        /// Who may have something to hand over. In a suspension only a few are, after the first time: each immediate post asks.
        mutating func takeHolders() -> [Registration] {
            defer { holders = suspension.isSuspended ? [:] : nil }
            return holders.map { Array($0.values) } ?? registry.all.map(\.observer)
        }
    }

    /// What the registrations of this router read before each delivery.
    let gate = DeliveryGate()
    private let state = Locked(State())

    // MARK: Observers

    func add(_ observer: Registration, name: NotificationName?, object: NotificationObject?) -> Registry.Key {
        state.withLock { state in
            let key = state.registry.add(observer, name: name, object: object)
            observer.rank.store(key.number, ordering: .relaxed)
            return key
        }
    }

    /// Ends a registration and drops what waits for it (CF-S12).
    func remove(_ observer: Registration, _ key: Registry.Key) {
        observer.cancel()
        let counts = observer.counts
        state.withLock { state in
            guard state.registry.remove(key) != nil else { return }
            state.holders?[ObjectIdentifier(observer)] = nil
            state.endedCounts.add(counts)
        }
    }

    // MARK: Suspension

    var isSuspended: Bool { state.withLock { $0.suspension.isSuspended } }

    /// No delivery begins after this, except on a thread that has taken its notification already.
    func suspend() {
        state.withLock { state in
            // What the queues have not delivered waits from now on.
            if !state.suspension.isSuspended { state.holders = nil }
            state.suspension.suspend()
            gate.limit = state.suspension.limit
        }
    }

    /// Ends the suspension. What waits follows with ``flush()``.
    ///
    /// - Returns: whether the caller must have the reading thread call ``flush()``.
    func resume() -> Bool { state.withLock { $0.suspension.resume() } }

    /// Hands over what waits, if it is due (CF-S8).
    func flush() {
        let holders = state.withLock { state in
            defer { gate.limit = state.suspension.limit }
            return state.suspension.flush() ? state.takeHolders() : []
        }
        handOver(holders)
    }

    /// Delivers what waits for these observers, in the order of arrival. The observers of one notification get it in the order of their
    /// registration (CF-S11, CF-D3).
    private func handOver(_ holders: [Registration]) {
        struct Due {
            let number: UInt64
            let rank: UInt64
            let observer: Registration
        }
        let due = holders.flatMap { observer in
            let rank = observer.rank.load(ordering: .relaxed)
            return observer.release().map { Due(number: $0, rank: rank, observer: observer) }
        }
        for due in due.sorted(by: { ($0.number, $0.rank) < ($1.number, $1.rank) }) { due.observer.deliverNext() }
    }

    // MARK: Notifications

    /// The receivers of a notification, and what the router does before they get it.
    private struct Route {
        let receivers: [Registration?]
        let arrival: Suspension.Arrival
        /// Registrations that get what waits for them before the receivers get this notification.
        var holders: [Registration] = []
    }

    func receive(_ notification: WireNotification) {
        let route = route(notification)
        switch route.arrival {
        case .deliver(let number):
            for case let receiver? in route.receivers { receiver.offer(notification, number: number) }
        case .flushAndDeliver(let number):
            handOver(route.holders)
            for case let receiver? in route.receivers { receiver.offer(notification, number: number) }
        case .wait(let number):
            for case let receiver? in route.receivers { receiver.keep(notification, number: number) }
        }
    }

    private func route(_ notification: WireNotification) -> Route {
        state.withLock { state in
            state.received += 1
            let receivers = state.registry.receivers(name: notification.name, object: notification.object)
            // A notification without a receiver flushes nothing.
            let isImmediate =
                state.suspension.isSuspended
                && receivers.contains { receiver in
                    guard let receiver else { return false }
                    return notification.deliversImmediately || receiver.suspensionBehavior == .deliverImmediately
                }
            let arrival = state.suspension.arrive(isImmediate: isImmediate)
            var route = Route(receivers: receivers, arrival: arrival)
            switch arrival {
            case .deliver: break
            case .flushAndDeliver:
                gate.limit = state.suspension.limit
                // Together with the limit: a suspension that begins anew right after this asks all again.
                route.holders = state.takeHolders()
            case .wait:
                if state.holders != nil {
                    for case let receiver? in receivers { state.holders?[ObjectIdentifier(receiver)] = receiver }
                }
            }
            return route
        }
    }

    // MARK: Looking in

    /// What ``CenterStatistics`` says of observers and deliveries.
    struct Statistics {
        let observers: Int
        let received: UInt64
        let waiting: Int
        let deliveries: DeliveryCounts

        static let none = Statistics(observers: 0, received: 0, waiting: 0, deliveries: DeliveryCounts())
    }

    var statistics: Statistics {
        let state = state.withLock { $0 }
        var counts = state.endedCounts
        var waiting = 0
        for (_, observer) in state.registry.all {
            counts.add(observer.counts)
            waiting += observer.waitingCount
        }
        return Statistics(
            observers: state.registry.count,
            received: state.received,
            waiting: waiting,
            deliveries: counts
        )
    }
}
