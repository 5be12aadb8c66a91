import DBusTransport
public import NotifyCenter
import Synchronization

/// Notifications between the processes of a login session, as Foundation spells them on macOS: source written for that one
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
/// every process of the bus, the poster's own included; always through the bus and never inside the call (CF-P10). Objects are
/// text and compared byte by byte (CF-M4), as are names. Posts of one process arrive in their order, between posters there is
/// none (CF-D4, CF-D5). For a slow observer the newest 4096 notifications wait; older ones are dropped. Any process may post any
/// name: treat what arrives as untrusted (CF-U8).
///
/// It works over a `DistributedNotifyCenter`, and hears what is posted there, and to the `CFNotificationCenter` of
/// that name. All functions may be called from any thread, handlers included.
///
/// Different from macOS:
/// - It is no subclass of `NotificationCenter`, whose functions cannot be overridden on Linux. Code that takes a
///   `NotificationCenter` does not take it.
/// - There are no selectors: observers are closures, removed by the token that adding them returned.
/// - An observer of any name and any object gets everything; macOS gives it nothing (CF-X7).
/// - Posters in a sandbox may send a userInfo (CF-U5).
/// - “The main thread” is the main queue, and so the main actor. It is served by `RunLoop.main.run()`, by `dispatchMain()`, and
///   by an `async` main; `Thread.isMainThread` holds there with the first only.
/// - Nothing suspends the center by itself: there is no AppKit that does so with the app's activation (CF-S2).
/// - What macOS answers with an exception (an object that is no text, a userInfo that is no property list) does nothing and is
///   reported to `UnthrownFailures`, as is a bus that cannot be reached.
public final class DistributedNotificationCenter: Sendable {
    let center: DistributedNotifyCenter
    /// Holds tokens and observations, so that a registration lasts until it is removed, whoever keeps its token.
    let observers = Locked(ObserverTable<ObserverToken, ObjectText, NotificationObservation>())
    let undecodable = Counter()

    private static let shared = DistributedNotificationCenter(.default)

    /// The process's center, on the bus that the environment names (`Bus.fromEnvironment`). Always the same
    /// object.
    public class func `default`() -> DistributedNotificationCenter { shared }

    /// The center of a type. There is one type, ``CenterType/localNotificationCenterType``, and its center is ``default()``
    /// (CF-X1). For any other the answer is the same, and it is reported to `UnthrownFailures`.
    public class func forType(_ notificationCenterType: CenterType) -> DistributedNotificationCenter {
        if notificationCenterType != .localNotificationCenterType {
            UnthrownFailures.report(CenterTypeError(type: notificationCenterType), in: #function)
        }
        return shared
    }

    /// A center over another one, with which it shares the bus and the suspension. Its observers end with it. Not on
    /// macOS.
    public init(_ center: DistributedNotifyCenter) { self.center = center }

    /// A center on this bus. It connects with its first use. Its observers end with it. Not on macOS.
    public convenience init(bus: Bus) { self.init(DistributedNotifyCenter(bus: bus)) }

    /// Whether deliveries to this process wait. False at the start; setting it anew to what it is does nothing (CF-S1, CF-S9).
    ///
    /// What becomes of the notifications meanwhile is each observer's ``SuspensionBehavior``; setting it to `false` delivers
    /// what waited, in the order of arrival (CF-S8). The centers over one and the same
    /// `DistributedNotifyCenter` share it.
    public var suspended: Bool {
        get { center.isSuspended }
        set { center.isSuspended = newValue }
    }
}

private struct CenterTypeError: Error, CustomStringConvertible {
    let type: DistributedNotificationCenter.CenterType
    var description: String {
        "there is no center of type \(type.rawValue); use localNotificationCenterType, whose center was returned"
    }
}
