import DBusTransport
public import Foundation
import NotifyCenter
import Synchronization

extension DistributedNotificationCenter {
    /// Calls `block` for each matching post, until ``removeObserver(_:)-(Any)`` is given the returned token; dropping the token ends
    /// nothing (CF-X8). Suspension coalesces (CF-S4).
    ///
    /// The registration is in force on return: what any process posts from then on is seen (CF-A11). Blocks for one answer of the
    /// bus.
    ///
    /// - Parameters:
    ///   - name: the name; `nil` for any, with an object or without one (CF-A4, CF-X7).
    ///   - object: the object, a `String`; `nil` for any.
    ///   - queue: where `block` runs, for one notification at a time and in the order of arrival, also on a queue that allows more
    ///     at once. `nil` is the main queue (CF-D2). Where the queue is suspended, the newest 4096 notifications wait.
    ///     They are no operations that `cancelAllOperations()` would cancel: the token removes the observer.
    ///   - block: gets the posted name, the object as `String`, and the userInfo in Swift's own types
    ///     (`PropertyListValue.foundationValue`).
    ///
    /// An object that is not text (CF-X6) is reported to `UnthrownFailures`; then nothing is registered, and the token stands for nothing. A
    /// bus that cannot be reached or refuses is reported too, and the observer kept: it hears once the bus is there and grants its rule.
    @discardableResult
    public func addObserver(
        forName name: NSNotification.Name?,
        object: Any?,
        queue: OperationQueue?,
        using block: @escaping @Sendable (Notification) -> Void
    ) -> any NSObjectProtocol {
        addObserver(forName: name, object: object, suspensionBehavior: .coalesce, queue: queue, using: block)
    }

    /// As ``addObserver(forName:object:queue:using:)``, with a say in what happens while the center is ``suspended`` (CF-A7). On
    /// macOS only observers with selectors have that.
    @discardableResult
    public func addObserver(
        forName name: NSNotification.Name?,
        object: Any?,
        suspensionBehavior: SuspensionBehavior,
        queue: OperationQueue?,
        using block: @escaping @Sendable (Notification) -> Void
    ) -> any NSObjectProtocol {
        let token = ObserverToken()
        do {
            let object = try ObjectText.text(object)
            try add(token, name, object, suspensionBehavior, Delivery(queue), block)
        } catch {
            UnthrownFailures.report(error, in: "DistributedNotificationCenter.\(#function)")
        }
        return token
    }

    private func add(
        _ token: ObserverToken,
        _ name: NSNotification.Name?,
        _ object: String?,
        _ suspensionBehavior: SuspensionBehavior,
        _ delivery: Delivery,
        _ block: @escaping @Sendable (Notification) -> Void
    ) throws(DBusError) {
        let name = name.map { NotificationName($0) }
        try center.keepObserving(
            name,
            object: object,
            delivery: delivery,
            suspensionBehavior: .init(suspensionBehavior),
            known: { observation in
                observers.withLock { $0.add(observation, of: token, name: name, object: object.map { ObjectText($0) }) }
            },
            handler: { block(Notification($0)) }
        )
    }

    /// Removes what the token stands for; what is no token of this center, or was removed before, is no matter (CF-R5).
    ///
    /// On return nothing more is called, what waited for it included, but for a call that is under way on another thread
    /// (CF-R7).
    public func removeObserver(_ observer: Any) {
        if let token = observer as? ObservationToken { return token.remove() }
        removeObserver(observer, name: nil, object: nil)
    }

    /// As ``removeObserver(_:)-(Any)``, if the registration meets the criteria, of which `nil` is none (CF-R2, CF-X4). One for
    /// any name or any object does not meet a given one (CF-R3).
    public func removeObserver(_ observer: Any, name: NSNotification.Name?, object: String?) {
        guard let token = observer as? ObserverToken else { return }
        let (name, object) = (name.map { NotificationName($0) }, object.map { ObjectText($0) })
        let removed = observers.withLock { $0.remove(token, name: name, object: object) }
        for observation in removed { observation.cancel() }
    }
}
