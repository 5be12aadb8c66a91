// This module's API uses these types, so they are re-exported: a ported file then imports Foundation and one other
// module. For the other names of NotifyCenter, a file imports that module.
import Basics
import DBus
public import Foundation
public import NotifyCenter
import Synchronization

@_exported public import enum NotifyCenter.Bus
@_exported public import struct NotifyCenter.DBusError
@_exported public import struct NotifyCenter.PostingOptions
@_exported public import enum NotifyCenter.UnthrownFailures

/// Notifications between the processes of a login session, with Foundation's API on macOS: source code written for
/// macOS compiles and has the same meaning.
///
/// ```swift
/// let center = DistributedNotificationCenter.default()
/// let token = center.addObserver(forName: .init("com.example.saved"), object: nil, queue: nil) { notification in
///     print(notification.object ?? "", notification.userInfo ?? [:])
/// } center.postNotificationName(.init("com.example.saved"), object: "draft", userInfo: ["count": 3],
/// deliverImmediately: true)
/// ```
///
/// A post (name, object) reaches an observer whose name is that name or any, and whose object is that object or any
/// (CF-M1), in every process of the bus. The poster's own process receives the post too, through the bus and never
/// within the post (CF-P10). Objects are text. Objects and names are compared byte by byte (CF-M3, CF-M4). Posts of one
/// process arrive in order; posts of different processes have no order (CF-D4, CF-D5). For a slow observer the newest
/// 4096 notifications wait, at most 16 MiB of them; older ones are dropped. Any process may post any name: treat what
/// arrives as untrusted (CF-U8).
///
/// The center is built on a `DistributedNotifyCenter`, and shares posts and observers with it and with the distributed
/// `CFNotificationCenter`. All functions may be called from any thread, also from an observer's block.
///
/// Differences from macOS:
/// - It is not a subclass of `NotificationCenter`, because on Linux that class's functions cannot be overridden. A
///   function that takes a `NotificationCenter` does not take this class.
/// - Linux has no selectors: observers are closures. The token that adding returns removes them.
/// - An observer of any name and any object gets everything; macOS gives it nothing (CF-X7).
/// - A poster in a sandbox may send a userInfo (CF-U5).
/// - “The main thread” is the main queue, and so the main actor. `RunLoop.main.run()`, `dispatchMain()` and an `async`
///   main serve it; `Thread.isMainThread` is true there only with the first.
/// - Only the program itself suspends the center. On macOS, AppKit does so too when the app is deactivated (CF-S2).
/// - Where macOS raises an exception (an object that is not text, a userInfo that is not a property list), the call
///   does nothing and reports to `UnthrownFailures`. A call also reports a bus that cannot be reached.
public final class DistributedNotificationCenter: DefaultDistributedNotificationCenter, Sendable {
    let center: DistributedNotifyCenter
    /// Keeps the observations, so that a registration lasts until it is removed, even if its token is released.
    let observers = Locked(ObserverTable<ObserverToken, NotificationObject, NotificationObservation>())
    let undecodable = Counter()

    fileprivate static let shared = DistributedNotificationCenter(.default)

    /// The process's center, on the bus that the environment names (`Bus.fromEnvironment`). Always the same object.
    public class func `default`() -> DistributedNotificationCenter { shared }

    /// Returns the center of a type. There is one type, ``CenterType/localNotificationCenterType``, and its center is
    /// ``default()`` (CF-X1). Any other type gets the same center, and a report to `UnthrownFailures`.
    public class func forType(_ notificationCenterType: CenterType) -> DistributedNotificationCenter {
        if notificationCenterType != .localNotificationCenterType {
            let problem = "there is no center of type \(notificationCenterType.rawValue)"
            let remedy = "use localNotificationCenterType, whose center was returned"
            UnthrownFailures.report(Problem("\(problem); \(remedy)"), in: #function)
        }
        return shared
    }

    /// Creates a center that shares bus and suspension with another center. The observers of `addObserver(forName:…)`
    /// end with it. macOS has no such initializer.
    public init(_ center: DistributedNotifyCenter) { self.center = center }

    /// Creates a center on this bus. It connects on first use. The observers of `addObserver(forName:…)` end with it.
    /// macOS has no such initializer.
    public convenience init(bus: Bus) { self.init(DistributedNotifyCenter(bus: bus)) }

    /// Whether deliveries to this process wait. It is initially false. Setting the current value has no effect (CF-S1,
    /// CF-S9). The setter does not wait for deliveries.
    ///
    /// Each observer's ``SuspensionBehavior`` says how its notifications are treated during a suspension. Setting the
    /// property to `false` delivers what waited, in the order of arrival (CF-S8). All centers over one
    /// `DistributedNotifyCenter` share it.
    public var suspended: Bool {
        get { center.isSuspended }
        set { center.isSuspended = newValue }
    }
}

/// Gives ``DistributedNotificationCenter`` the property `default` in addition to the function of that name. One type
/// cannot declare both; on macOS the class inherits the property from `NotificationCenter`.
public protocol DefaultDistributedNotificationCenter: AnyObject {}

extension DefaultDistributedNotificationCenter where Self == DistributedNotificationCenter {
    /// The process's center: the same object as ``DistributedNotificationCenter/default()`` (CF-X1). Source code for
    /// macOS uses both `DistributedNotificationCenter.default` and `DistributedNotificationCenter.default()`.
    public static var `default`: DistributedNotificationCenter { .shared }
}

// MARK: Types

extension DistributedNotificationCenter {
    /// The type of the center that ``forType(_:)`` returns.
    public struct CenterType: RawRepresentable, Hashable, Sendable {
        /// The type's text.
        public let rawValue: String

        /// Creates a type with this text.
        public init(rawValue: String) { self.rawValue = rawValue }

        // Apple's spelling.
        // swift-format-ignore: DontRepeatTypeInStaticProperties
        /// The center between the processes of this computer's login session: the only type.
        public static let localNotificationCenterType = CenterType(rawValue: "NSLocalNotificationCenterType")
    }

    /// How notifications for an observer are treated while the center is ``suspended``. While the center is not
    /// suspended, all four behave the same (CF-S10). This is a separate type, because its numbers are `UInt` on macOS.
    public enum SuspensionBehavior: UInt, Sendable {
        /// Notifications are lost (CF-S3).
        case drop = 1
        /// The last notification of each name and object waits, within the limits of ``hold`` (CF-S4). The default.
        case coalesce = 2
        /// The newest 4096 wait, at most 16 MiB of them; older ones are dropped (CF-S5).
        case hold = 3
        /// Notifications are delivered anyway, after everything that waits in the center (CF-S6).
        case deliverImmediately = 4
    }

    /// Options for a post: whether suspended observers get it at once, and which sessions it reaches.
    public typealias Options = PostingOptions
}

extension NotifyCenter.SuspensionBehavior {
    init(_ behavior: DistributedNotificationCenter.SuspensionBehavior) {
        self =
            switch behavior {
            case .drop: .drop
            case .coalesce: .coalesce
            case .hold: .hold
            case .deliverImmediately: .deliverImmediately
            }
    }
}

// MARK: Objects

extension DistributedNotificationCenter {
    /// Returns the text of an object.
    ///
    /// - Throws: ``DistributedObjectError`` if it is not text (CF-X6).
    func text(of object: Any?) throws(DistributedObjectError) -> String? {
        switch object {
        case nil: return nil
        case let text as Substring: return String(text)
        // Also matches a String.
        case let text as NSString: return text as String
        case let other?: throw DistributedObjectError(found: "\(type(of: other))")
        }
    }
}

/// A notification's object that is not text, and so has no meaning in another process (CF-P3, CF-X6).
public struct DistributedObjectError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The type of the object.
    public let found: String

    /// The problem and the remedy.
    public var description: String {
        "the object of a distributed notification is text, not \(found); give it a String that names it"
    }
}

extension DistributedNotificationCenter {
    /// Calls `block` for each matching post, until ``removeObserver(_:)-(Any)`` gets the returned token. The center
    /// keeps the registration even if the caller releases the token (CF-X8). While the center is suspended, the
    /// registration coalesces (CF-S4). It is in force on return (CF-A11). The function blocks until the bus has
    /// responded, for at most 25 seconds.
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
            let (name, object) = (name.map { NotificationName($0) }, try text(of: object))
            try center.keepObserving(
                name,
                object: object,
                delivery: Delivery(queue),
                suspensionBehavior: .init(suspensionBehavior),
                known: { observation in
                    observers.withLock {
                        $0.add(observation, of: token, name: name, object: object.map { NotificationObject(text: $0) })
                    }
                },
                handler: { block(Notification($0)) }
            )
        }
        return token
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
    /// before the loop begins wait for it. The function blocks until the bus has responded, for at most 25 seconds.
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
    /// If the object is not text (CF-X6), the function reports to `UnthrownFailures`, and the sequence is empty. The
    /// function also reports if the bus cannot be reached or refuses the match rule. Then the sequence gets the posts
    /// made after the bus is there and has accepted the rule.
    public func notifications(named name: Notification.Name?, object: Any? = nil) -> Notifications {
        var base: NotificationSequence<DistributedNotification>?
        report {
            try center.keepNotifications(named: name.map { NotificationName($0) }, object: try text(of: object)) {
                base = $0
            }
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
        public func makeAsyncIterator() -> Iterator { Iterator(base: base?.makeAsyncIterator()) }

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

extension DistributedNotificationCenter {
    /// Posts without `Options.deliverImmediately` (CF-X3).
    ///
    /// For all functions that post: on return the kernel has the notification; for a bus that does not keep up, the
    /// call waits at most 30 seconds. No report tells who receives it (CF-P11). All arguments are copied (CF-P12).
    ///
    /// - Parameters:
    ///   - name: any text, including the empty text.
    ///   - object: the object that the notification is about; with `nil`, only observers of any object receive it
    ///     (CF-P2).
    ///   - userInfo: a property list (`PropertyListValue.init(foundationValue:)` names the types) of at most 1 MiB
    ///     (CF-U9), nested at most 20 arrays and dictionaries deep. An empty one arrives as empty, and `nil` as `nil`
    ///     (CF-U6).
    ///
    /// If the userInfo cannot be sent, or the bus cannot be reached or does not read, the function reports to
    /// `UnthrownFailures`. No observer gets the post then, except that a bus that does not read may deliver it when it
    /// resumes.
    public func post(name: NSNotification.Name, object: String?, userInfo: [AnyHashable: Any]? = nil) {
        report { try post(name, object, userInfo, []) }
    }

    /// Posts the name, object and userInfo of a notification like ``post(name:object:userInfo:)``. If the object is not
    /// text, the function reports that and posts nothing (CF-X6).
    public func post(_ notification: Notification) {
        report { try post(notification.name, text(of: notification.object), notification.userInfo, []) }
    }

    /// Posts like ``post(name:object:userInfo:)``. If `deliverImmediately` is true, suspended observers get the
    /// notification at once too (CF-P5).
    public func postNotificationName(
        _ name: NSNotification.Name,
        object: String?,
        userInfo: [AnyHashable: Any]? = nil,
        deliverImmediately: Bool
    ) {
        report { try post(name, object, userInfo, deliverImmediately ? .deliverImmediately : []) }
    }

    /// Posts like ``post(name:object:userInfo:)``, with options.
    public func postNotificationName(
        _ name: NSNotification.Name,
        object: String?,
        userInfo: [AnyHashable: Any]? = nil,
        options: Options = []
    ) {
        report { try post(name, object, userInfo, options) }
    }

    private func post(
        _ name: NSNotification.Name,
        _ object: String?,
        _ userInfo: [AnyHashable: Any]?,
        _ options: Options
    ) throws {
        let userInfo = try userInfo.map { try UserInfo(propertyList: $0) }
        try center.post(NotificationName(name), object: object, userInfo: userInfo, options: options)
    }

    /// Runs `work` for one of this class's functions, and reports its error.
    func report(in function: String = #function, _ work: () throws -> Void) {
        UnthrownFailures.report(in: "DistributedNotificationCenter.\(function)", work)
    }
}
