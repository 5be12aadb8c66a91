import Basics
import DBus
import Foundation
public import NotifyCenter
import Synchronization

// This module's API uses these types, so they are re-exported: a ported file then imports Foundation and one other
// module. For the other names of NotifyCenter, a file imports that module.
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
/// }
/// center.postNotificationName(.init("com.example.saved"), object: "draft", userInfo: ["count": 3], deliverImmediately: true)
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
/// - If macOS raises an exception (an object that is not text, a userInfo that is not a property list), the call does
///   nothing and reports to `UnthrownFailures`, as it does if the bus cannot be reached.
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
            UnthrownFailures.report(CenterTypeError(type: notificationCenterType), in: #function)
        }
        return shared
    }

    /// Creates a center that shares bus and suspension with another center. Its observers end with it. macOS has no
    /// such initializer.
    public init(_ center: DistributedNotifyCenter) { self.center = center }

    /// Creates a center on this bus. It connects on first use. Its observers end with it. macOS has no such
    /// initializer.
    public convenience init(bus: Bus) { self.init(DistributedNotifyCenter(bus: bus)) }

    /// Whether deliveries to this process wait. It is initially false. Setting the current value has no effect (CF-S1,
    /// CF-S9).
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

private struct CenterTypeError: Error, CustomStringConvertible {
    let type: DistributedNotificationCenter.CenterType
    var description: String {
        "there is no center of type \(type.rawValue); use localNotificationCenterType, whose center was returned"
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
