import Basics
import DBus
import Synchronization

/// Routes an arriving notification to its observers, now or later. Pure structs decide (``ObserverRegistry``,
/// ``Suspension``, ``DeliveryQueue``). This class holds them and hands notifications over outside of its lock.
///
/// Only the reading thread calls ``receive(_:)`` and ``flush()``, so that the order is kept.
final class NotificationRouter: Sendable {
    typealias Registry = ObserverRegistry<NotificationObject, Registration>

    private struct State {
        var registry = Registry()
        var suspension = Suspension()
        var received: UInt64 = 0
        var endedCounts = DeliveryCounts()
        /// Registrations that hold notifications no ``release()`` has released; `nil` if it may be any registration.
        var holders: [ObjectIdentifier: Registration]?

        /// Returns the registrations that may hold notifications. After the first call in a suspension these are few;
        /// each immediate post calls this.
        mutating func takeHolders() -> [Registration] {
            defer { holders = suspension.isSuspended ? [:] : nil }
            return holders.map { Array($0.values) } ?? registry.all
        }
    }

    /// The gate that this router's registrations read before each delivery.
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

    /// Suspends deliveries. No delivery begins after this, except on a thread that has already taken its notification.
    func suspend() {
        state.withLock { state in
            // Notifications that the queues have not delivered wait from now on.
            if !state.suspension.isSuspended { state.holders = nil }
            state.suspension.suspend()
            gate.limit = state.suspension.limit
        }
    }

    /// Ends the suspension. Waiting notifications are delivered by ``flush()``. Returns whether the caller must have
    /// the reading thread call ``flush()``.
    func resume() -> Bool { state.withLock { $0.suspension.resume() } }

    /// Hands over the waiting notifications, if they are due (CF-S8).
    func flush() {
        let holders = state.withLock { state in
            defer { gate.limit = state.suspension.limit }
            return state.suspension.flush() ? state.takeHolders() : []
        }
        handOver(holders)
    }

    /// Delivers what waits for these observers, in the order of arrival. The observers of one notification get it in
    /// the order of their registration (CF-S11, CF-D3).
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

    /// The receivers of a notification, and the steps before they get it.
    private struct Route {
        let receivers: [Registration?]
        let arrival: Suspension.Arrival
        /// Registrations whose waiting notifications are delivered before this one.
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
                // Taken together with the limit: a suspension that begins right after this covers all registrations
                // again.
                route.holders = state.takeHolders()
            case .wait:
                if state.holders != nil {
                    for case let receiver? in receivers { state.holders?[ObjectIdentifier(receiver)] = receiver }
                }
            }
            return route
        }
    }

    // MARK: Statistics

    /// The statistics of observers and deliveries.
    var statistics: CenterStatistics {
        let state = state.withLock { $0 }
        var statistics = CenterStatistics()
        statistics.observers = state.registry.count
        statistics.received = state.received
        statistics.deliveries = state.endedCounts
        for observer in state.registry.all {
            statistics.deliveries.add(observer.counts)
            statistics.waiting += observer.waitingCount
        }
        return statistics
    }
}
