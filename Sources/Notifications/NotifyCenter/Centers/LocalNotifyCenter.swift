import DBusTransport
import Synchronization

/// A notification of the local center.
public struct LocalNotification {
    /// The posted name, also for observers of any name (CF-D6).
    public let name: NotificationName
    /// What it is about: the very object that was posted.
    public let object: AnyObject?
    /// What it says: the very values that were posted, uncopied (CF-U3).
    public let userInfo: [AnyHashable: Any]?
}

/// Notifications within this process, delivered on the poster's thread before `post` returns (CF-D1).
///
/// Observers are called in the order of their registration (CF-D3). Who receives a post is settled when it begins: an observer
/// added by a handler is not called for it (CF-C1); one removed by a handler before its turn is not called either (CF-C3).
/// A post from within a handler is delivered before the outer one goes on (CF-C4). No lock is held during calls.
///
/// All functions may be called from any thread, handlers and deinitialisers included.
public final class LocalNotifyCenter: Sendable {
    /// The process's center.
    public static let `default` = LocalNotifyCenter()

    private let center = SynchronousCenter<ObjectIdentifier, LocalNotification>()

    /// A center of its own, apart from ``default``.
    public init() {}

    /// Calls the observers of `name` and `object`, one after the other, on this thread.
    ///
    /// - Parameters:
    ///   - name: what happened.
    ///   - object: compared by identity (CF-M5); without one, only observers of any object receive the post (CF-P2).
    ///   - userInfo: handed on as it is.
    public func post(_ name: NotificationName, object: AnyObject? = nil, userInfo: [AnyHashable: Any]? = nil) {
        let notification = LocalNotification(name: name, object: object, userInfo: userInfo)
        center.post(notification, name: name, object: object.map(ObjectIdentifier.init))
    }

    /// Calls `handler` for each matching post until the returned observation ends.
    ///
    /// - Parameters:
    ///   - name: the name; `nil` for any.
    ///   - object: the object, by identity; `nil` for any. It is not retained (CF-P3): end the observation before the object
    ///     ends, or another at its address takes its place.
    ///   - handler: is called on the poster's thread.
    public func observe(
        _ name: NotificationName?,
        object: AnyObject? = nil,
        handler: @escaping @Sendable (LocalNotification) -> Void
    ) -> NotificationObservation {
        center.observe(name, object: object.map(ObjectIdentifier.init), handler: handler)
    }
}

/// Delivery within the process, on the poster's thread: what ``LocalNotifyCenter`` and the local ``CallbackCenter`` share.
final class SynchronousCenter<Object: Hashable & Sendable, Notification>: Sendable {
    typealias Handler = @Sendable (Notification) -> Void

    private final class Observer: Sendable {
        private struct State {
            /// `nil` once the observation has ended. Otherwise nothing here would ever be freed: the observation keeps this observer,
            /// for its counts, and the handler may hold whoever holds the observation.
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

    /// Calls the observers one after the other. Who they are is settled at the start (CF-C1); one that was removed meanwhile is not
    /// called (CF-C3).
    func post(_ notification: Notification, name: NotificationName, object: Object?) {
        let receivers = registry.withLock { $0.receivers(name: name, object: object) }
        for case let receiver? in receivers { receiver.call(notification) }
    }

    /// - Parameter known: as in ``BusCenter/keepObserving(_:object:_:known:)``.
    @discardableResult
    func observe(
        _ name: NotificationName?,
        object: Object?,
        known: (NotificationObservation) -> Void = { _ in },
        handler: @escaping Handler
    ) -> NotificationObservation {
        let observer = Observer(handler)
        let observation = NotificationObservation(isLocal: true) { observer.counts }
        known(observation)
        let key = registry.withLock { $0.add(observer, name: name, object: object) }
        observation.begin { [weak self] in
            observer.cancel()
            self?.registry.withLock { _ = $0.remove(key) }
        }
        return observation
    }
}
