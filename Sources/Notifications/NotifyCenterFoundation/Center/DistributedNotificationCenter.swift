import DBusTransport
import Foundation
public import NotifyCenter
import Synchronization

// This module's API speaks of these, so they come along with it: a ported file then imports Foundation and one module more. The other
// names of NotifyCenter are for files that import it.
@_exported public import enum NotifyCenter.Bus
@_exported public import struct NotifyCenter.DBusError
@_exported public import struct NotifyCenter.PostingOptions
@_exported public import enum NotifyCenter.UnthrownFailures

/// Notifications between the processes of a login session, as Foundation spells them on macOS: source that was written for macOS
/// compiles, and means the same.
///
/// ```swift
/// let center = DistributedNotificationCenter.default()
/// let token = center.addObserver(forName: .init("com.example.saved"), object: nil, queue: nil) { notification in
///     print(notification.object ?? "", notification.userInfo ?? [:])
/// }
/// center.postNotificationName(.init("com.example.saved"), object: "draft", userInfo: ["count": 3], deliverImmediately: true)
/// ```
///
/// A post (name, object) reaches an observer whose name is that name or any, and whose object is that object or any (CF-M1), in
/// every process of the bus. The poster's own process is one of them; it too receives through the bus, never inside the call (CF-P10).
/// Objects are text. Objects and names are compared byte by byte (CF-M3, CF-M4). Posts of one process arrive in their order; posts of
/// different processes have no order (CF-D4, CF-D5). For a slow observer the newest 4096 notifications wait, at most 16 MiB of them;
/// older ones are dropped. Any process may post any name: treat what arrives as untrusted (CF-U8).
///
/// The center stands on a `DistributedNotifyCenter`, and shares posts and observers with it and with the distributed
/// `CFNotificationCenter`. All functions may be called from any thread, also from an observer's block.
///
/// Different from macOS:
/// - It is no subclass of `NotificationCenter`, because Linux lets nobody override that class's functions. A function that takes a
///   `NotificationCenter` does not take this class.
/// - Linux has no selectors: observers are closures. The token that adding returns removes them.
/// - An observer of any name and any object gets everything; macOS gives it nothing (CF-X7).
/// - A poster in a sandbox may send a userInfo (CF-U5).
/// - “The main thread” is the main queue, and so the main actor. `RunLoop.main.run()`, `dispatchMain()` and an `async` main serve it;
///   `Thread.isMainThread` is true there with the first only.
/// - Only the program itself suspends the center. On macOS, AppKit does so too, with the app's activation (CF-S2).
/// - Where macOS raises an exception (an object that is not text, a userInfo that is not a property list) the call does nothing and
///   reports to `UnthrownFailures`, as it does where the bus cannot be reached.
public final class DistributedNotificationCenter: DefaultDistributedNotificationCenter, Sendable {
    let center: DistributedNotifyCenter
    /// Holds tokens and observations, so that a registration lasts until it is removed, whoever keeps its token.
    let observers = Locked(ObserverTable<ObserverToken, NotificationObject, NotificationObservation>())
    let undecodable = Counter()

    fileprivate static let shared = DistributedNotificationCenter(.default)

    /// The process's center, on the bus that the environment names (`Bus.fromEnvironment`). Always the same object.
    public class func `default`() -> DistributedNotificationCenter { shared }

    /// The center of a type. There is one type, ``CenterType/localNotificationCenterType``, and its center is ``default()``
    /// (CF-X1). Any other type gets the same center, and a report to `UnthrownFailures`.
    public class func forType(_ notificationCenterType: CenterType) -> DistributedNotificationCenter {
        if notificationCenterType != .localNotificationCenterType {
            UnthrownFailures.report(CenterTypeError(type: notificationCenterType), in: #function)
        }
        return shared
    }

    /// A center that shares bus and suspension with another one. Its observers end with it. macOS has no such initializer.
    public init(_ center: DistributedNotifyCenter) { self.center = center }

    /// A center on this bus. It connects with its first use. Its observers end with it. macOS has no such initializer.
    public convenience init(bus: Bus) { self.init(DistributedNotifyCenter(bus: bus)) }

    /// Whether deliveries to this process wait. False at the start; setting the value that it has already does nothing (CF-S1, CF-S9).
    ///
    /// What becomes of the notifications meanwhile is each observer's ``SuspensionBehavior``. Setting it to `false` delivers what
    /// waited, in the order of arrival (CF-S8). All centers over one `DistributedNotifyCenter` share it.
    public var suspended: Bool {
        get { center.isSuspended }
        set { center.isSuspended = newValue }
    }
}

/// Gives ``DistributedNotificationCenter`` the property `default` beside the function of that name. One type cannot declare both; on
/// macOS the class inherits the property from `NotificationCenter`.
public protocol DefaultDistributedNotificationCenter: AnyObject {}

extension DefaultDistributedNotificationCenter where Self == DistributedNotificationCenter {
    /// The process's center: the same object as ``DistributedNotificationCenter/default()`` (CF-X1). Source for macOS says both
    /// `DistributedNotificationCenter.default` and `DistributedNotificationCenter.default()`.
    public static var `default`: DistributedNotificationCenter { .shared }
}

// MARK: Types

extension DistributedNotificationCenter {
    /// Which center ``forType(_:)`` returns.
    public struct CenterType: RawRepresentable, Hashable, Sendable {
        /// The type's text.
        public let rawValue: String

        /// A type with this text.
        public init(rawValue: String) { self.rawValue = rawValue }

        // Apple's spelling.
        // swift-format-ignore: DontRepeatTypeInStaticProperties
        /// The center between the processes of this computer's login session: the only one that there is.
        public static let localNotificationCenterType = CenterType(rawValue: "NSLocalNotificationCenterType")
    }

    /// What happens to the notifications for an observer while the center is ``suspended``. While the center is not suspended, all
    /// four do the same (CF-S10). It is a type of its own, because its numbers are `UInt` on macOS.
    public enum SuspensionBehavior: UInt, Sendable {
        /// They are lost (CF-S3).
        case drop = 1
        /// The last one of each name and object waits, within the bounds of ``hold`` (CF-S4). The default.
        case coalesce = 2
        /// The newest 4096 wait, at most 16 MiB of them; older ones are dropped (CF-S5).
        case hold = 3
        /// They are delivered all the same, after everything that waits in the center (CF-S6).
        case deliverImmediately = 4
    }

    /// How a notification is posted: at once also to suspended observers, and to which sessions.
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

private struct CenterTypeError: Error, CustomStringConvertible {
    let type: DistributedNotificationCenter.CenterType
    var description: String {
        "there is no center of type \(type.rawValue); use localNotificationCenterType, whose center was returned"
    }
}

// MARK: Objects

extension DistributedNotificationCenter {
    /// The text of an object.
    ///
    /// - Throws: ``DistributedObjectError`` where it is no text (CF-X6).
    func text(of object: Any?) throws(DistributedObjectError) -> String? {
        switch object {
        case nil: return nil
        case let text as Substring: return String(text)
        // A String too.
        case let text as NSString: return text as String
        case let other?: throw DistributedObjectError(found: "\(type(of: other))")
        }
    }
}

/// A notification's object that is not text, and so means nothing to another process (CF-P3, CF-X6).
public struct DistributedObjectError: Error, Sendable, Hashable, CustomStringConvertible {
    /// Its type.
    public let found: String

    /// What is wrong, and what to do.
    public var description: String {
        "the object of a distributed notification is text, not \(found); give it a String that names it"
    }
}
