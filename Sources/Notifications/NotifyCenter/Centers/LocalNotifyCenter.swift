import Basics
import DBus
import Synchronization

/// A notification of the local center.
public struct LocalNotification {
    /// The posted name, also for observers of any name (CF-D6).
    public let name: NotificationName
    /// The object that was posted, by reference.
    public let object: AnyObject?
    /// The values that were posted, uncopied (CF-U3).
    public let userInfo: [AnyHashable: Any]?
}

/// A center for notifications within this process, delivered on the poster's thread before `post` returns (CF-D1).
///
/// Observers are called in the order of their registration (CF-D3). The receivers of a post are fixed when it begins:
/// an observer that a handler adds is not called for it (CF-C1). An observer that a handler removes before its turn is
/// not called either (CF-C3). A post from within a handler is delivered before the outer one continues (CF-C4). No lock
/// is held during calls.
///
/// All functions may be called from any thread, handlers and deinitialisers included.
public final class LocalNotifyCenter: Sendable {
    /// The process's shared center.
    public static let `default` = LocalNotifyCenter()

    private let center = SynchronousCenter<ObjectIdentifier, LocalNotification>()

    /// Creates a center that is separate from ``default``.
    public init() {}

    /// Calls the observers of `name` and `object`, one after the other, on this thread.
    ///
    /// - Parameters:
    ///   - name: the name of the event.
    ///   - object: compared by identity (CF-M5); with `nil`, only observers of any object receive the post (CF-P2).
    ///   - userInfo: handed on unchanged.
    public func post(_ name: NotificationName, object: AnyObject? = nil, userInfo: [AnyHashable: Any]? = nil) {
        let notification = LocalNotification(name: name, object: object, userInfo: userInfo)
        center.post(notification, name: name, object: object.map(ObjectIdentifier.init))
    }

    /// Calls `handler` for each matching post until the returned observation ends.
    ///
    /// - Parameters:
    ///   - name: the name; `nil` for any.
    ///   - object: the object, by identity; `nil` for any. It is not retained (CF-P3). End the observation before the
    ///     object is freed: afterwards another object may get its address.
    ///   - handler: called on the poster's thread.
    public func observe(
        _ name: NotificationName?,
        object: AnyObject? = nil,
        handler: @escaping @Sendable (LocalNotification) -> Void
    ) -> NotificationObservation {
        center.observe(name, object: object.map(ObjectIdentifier.init), handler: handler)
    }
}

/// Delivery within the process, on the poster's thread. ``LocalNotifyCenter`` and the local ``CallbackCenter`` share
/// it.
final class SynchronousCenter<Object: Hashable & Sendable, Notification>: Sendable {
    typealias Handler = @Sendable (Notification) -> Void

    private final class Observer: Sendable {
        private struct State {
            /// `nil` once the observation has ended. This breaks a reference cycle: the observation keeps this observer
            /// for its counts, and the handler may hold the observation's owner.
            var handler: Handler?
            var delivered: UInt64 = 0
        }

        private let state: Locked<State>

        init(_ handler: @escaping Handler) { state = Locked(State(handler: handler)) }

        var counts: DeliveryCounts { DeliveryCounts(delivered: state.withLock { $0.delivered }) }

        /// Ends calls of the handler. The handler is freed outside the lock: it may hold the last reference to an
        /// object that posts in its deinit.
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

    /// Calls the observers one after the other. The receivers are fixed at the start (CF-C1). An observer that is
    /// removed before its turn is not called (CF-C3).
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
