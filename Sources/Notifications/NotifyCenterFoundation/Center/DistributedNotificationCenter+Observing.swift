import DBus
public import Foundation
import NotifyCenter
import Synchronization

extension DistributedNotificationCenter {
    /// Calls `block` for each matching post, until ``removeObserver(_:)-(Any)`` gets the returned token. The center
    /// keeps the registration even if the caller releases the token (CF-X8). While the center is suspended, the
    /// registration coalesces (CF-S4).
    ///
    /// The registration is in force on return: `block` gets what any process posts from then on (CF-A11). The function
    /// blocks for one response of the bus.
    ///
    /// - Parameters:
    ///   - name: the name; `nil` for any, with an object or without one (CF-A4, CF-X7).
    ///   - object: the object, a `String`; `nil` for any.
    ///   - queue: the queue on which `block` runs, for one notification at a time and in the order of arrival, even if
    ///     the queue is concurrent. `nil` is the main queue (CF-D2). While the queue is suspended, the newest 4096
    ///     notifications wait, at most 16 MiB of them. `cancelAllOperations()` does not cancel them: the token removes
    ///     the observer.
    ///   - block: gets the posted name, the object as `String`, and the userInfo in Swift's own types
    ///     (`PropertyListValue.foundationValue`).
    /// - Returns: the token.
    ///
    /// If the object is not text (CF-X6), the function reports to `UnthrownFailures` and registers nothing, and the
    /// token has no effect. The function also reports if the bus cannot be reached or refuses the match rule. Then the
    /// center keeps the observer: `block` gets the posts made after the bus is there and has accepted the rule.
    @discardableResult
    public func addObserver(
        forName name: NSNotification.Name?,
        object: Any?,
        queue: OperationQueue?,
        using block: @escaping @Sendable (Notification) -> Void
    ) -> any NSObjectProtocol {
        addObserver(forName: name, object: object, suspensionBehavior: .coalesce, queue: queue, using: block)
    }

    /// Observes like ``addObserver(forName:object:queue:using:)``, with a suspension behaviour (CF-A7). On macOS only
    /// observers with selectors have that choice.
    @discardableResult
    public func addObserver(
        forName name: NSNotification.Name?,
        object: Any?,
        suspensionBehavior: SuspensionBehavior,
        queue: OperationQueue?,
        using block: @escaping @Sendable (Notification) -> Void
    ) -> any NSObjectProtocol {
        let token = ObserverToken()
        report {
            let object = try text(of: object)
            try add(token, name, object, suspensionBehavior, Delivery(queue), block)
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
                observers.withLock {
                    $0.add(observation, of: token, name: name, object: object.map { NotificationObject(text: $0) })
                }
            },
            handler: { block(Notification($0)) }
        )
    }

    /// Removes the registration of a token. A token that was removed before, or a value that is not a token of this
    /// center, has no effect (CF-R5).
    ///
    /// After the return no further call of the block begins, and pending notifications are dropped. A call that has
    /// already begun on another thread continues (CF-R7).
    public func removeObserver(_ observer: Any) {
        if let token = observer as? ObservationToken { return token.remove() }
        removeObserver(observer, name: nil, object: nil)
    }

    /// Removes the registration like ``removeObserver(_:)-(Any)``, if it has this name and this object. `nil` means any
    /// (CF-R2, CF-X4). A given name does not match a registration for any name, and a given object does not match one
    /// for any object (CF-R3).
    public func removeObserver(_ observer: Any, name: NSNotification.Name?, object: String?) {
        // A forked child has no observers, and another thread of the parent may have held the lock at the fork.
        guard !ForkedChild.isCurrent, let token = observer as? ObserverToken else { return }
        let (name, object) = (name.map { NotificationName($0) }, object.map { NotificationObject(text: $0) })
        let removed = observers.withLock { $0.remove(token, name: name, object: object) }
        for observation in removed { observation.cancel() }
    }
}

// MARK: Tokens

/// The token of an observer. It conforms to `NSObjectProtocol` without being an `NSObject`, because `NSObject` is not
/// `Sendable`.
final class ObserverToken: NSObjectProtocol, Hashable, Sendable {
    func isEqual(_ object: Any?) -> Bool { object as AnyObject === self }
    var hash: Int { ObjectIdentifier(self).hashValue }
    func `self`() -> Self { self }
    func isProxy() -> Bool { false }
    var description: String { "an observer of DistributedNotificationCenter" }
    var debugDescription: String { description }

    static func == (left: ObserverToken, right: ObserverToken) -> Bool { left === right }
    func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}

// MARK: Sequences

extension DistributedNotificationCenter {
    /// Returns the matching posts as a sequence. The registration is in force on return (CF-X9, CF-A11): posts made
    /// before the loop begins wait for it. The function blocks for one response of the bus.
    ///
    /// ```swift
    /// for await notification in center.notifications(named: .init("com.example.saved")) { … }
    /// ```
    ///
    /// Elements come in the order of arrival. While the loop is busy, the newest 4096 wait, at most 16 MiB of them;
    /// older ones are dropped, and ``Notifications/droppedCount`` counts them. The loop ends when its task is
    /// cancelled. While the center is suspended, the registration coalesces (CF-S4).
    ///
    /// - Parameters:
    ///   - name: the name; `nil` for any. On macOS a name must be given.
    ///   - object: the object, a `String`; `nil` for any.
    ///
    /// If the object is not text (CF-X6), the function reports to `UnthrownFailures`, and the sequence is empty. If the
    /// bus cannot be reached or refuses the match rule, the function reports that, and the sequence gets the posts made
    /// after the bus is there and has accepted the rule.
    public func notifications(named name: Notification.Name?, object: Any? = nil) -> Notifications {
        var base: NotificationSequence<DistributedNotification>?
        report {
            try center.keepNotifications(
                named: name.map { NotificationName($0) },
                object: try text(of: object)
            ) { base = $0 }
        }
        return Notifications(base: base)
    }

    /// A sequence of notifications as they arrive. It is for one loop at a time: two loops over the same sequence share
    /// its elements.
    ///
    /// The observer is removed with the last copy and the last iterator.
    public struct Notifications: AsyncSequence, Sendable {
        fileprivate let base: NotificationSequence<DistributedNotification>?

        /// The number of notifications that were dropped for newer ones because the loop was busy.
        public var droppedCount: UInt64 { base?.counts.dropped ?? 0 }

        /// Creates an iterator, which keeps the observer in place.
        public func makeAsyncIterator() -> Iterator {
            Iterator(base: base?.makeAsyncIterator())
        }

        /// An iterator that waits for one notification after the other.
        public struct Iterator: AsyncIteratorProtocol {
            fileprivate var base: NotificationSequence<DistributedNotification>.Iterator?

            /// Returns the next notification; `nil` when the task is cancelled.
            public mutating func next(isolation: isolated (any Actor)?) async -> Notification? {
                await base?.next(isolation: isolation).map { Notification($0) }
            }
        }
    }
}
