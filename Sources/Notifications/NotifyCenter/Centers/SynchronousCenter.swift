import DBusTransport
import Synchronization

/// Delivery within the process, on the poster's thread: what ``LocalNotifyCenter`` and the local ``CallbackCenter`` share.
final class SynchronousCenter<Object: Hashable & Sendable, Notification>: Sendable {
    typealias Handler = @Sendable (Notification) -> Void

    private final class Observer: Sendable {
        private struct State {
            /// Gone with the observation's end, whoever still asks for its counts: it may hold its owner.
            var handler: Handler?
            var delivered: UInt64 = 0
        }

        private let state: Locked<State>

        init(_ handler: @escaping Handler) { state = Locked(State(handler: handler)) }

        var counts: DeliveryCounts { DeliveryCounts(delivered: state.withLock { $0.delivered }) }

        /// Frees the handler outside the lock: it may hold the last reference to something that posts in its deinit.
        func cancel() {
            let handler = state.withLock { state -> Handler? in
                defer { state.handler = nil }
                return state.handler
            }
            withExtendedLifetime(handler) {}
        }

        func call(_ notification: Notification) {
            let handler = state.withLock { state in
                if state.handler != nil { state.delivered += 1 }
                return state.handler
            }
            handler?(notification)
        }
    }

    private let registry = Locked(ObserverRegistry<Object, Observer>())

    /// Calls the observers one after the other; who they are is settled at the start (CF-C1), whether each still is one right
    /// before its call (CF-C3).
    func post(_ notification: Notification, name: NotificationName, object: Object?) {
        let receivers = registry.withLock { $0.receivers(name: name, object: object) }
        for receiver in receivers { receiver.call(notification) }
    }

    func observe(_ name: NotificationName?, object: Object?, handler: @escaping Handler) -> NotificationObservation {
        let observer = Observer(handler)
        let key = registry.withLock { $0.add(observer, name: name, object: object) }
        return NotificationObservation(
            counts: { observer.counts },
            remove: { [weak self] in
                observer.cancel()
                self?.registry.withLock { _ = $0.remove(key) }
            }
        )
    }
}
