import DBusTransport
public import Foundation
import NotifyCenter
import NotifyCenterFoundation

/// What a center calls for a notification (CF-T5, CF-D6), with
///
/// 1. the center that it was registered with;
/// 2. the pointer that it was registered with;
/// 3. the posted name, also where it was registered for any name;
/// 4. the posted object: from the local center the very pointer; from the distributed one a `CFString`, to be read by
///    `Unmanaged<CFString>.fromOpaque(object).takeUnretainedValue()`; from the Darwin one `nil`;
/// 5. the posted userInfo: from the local center the very dictionary; from the distributed one its values; from the Darwin one
///    `nil`.
///
/// Object and userInfo are valid during the call (CF-D8). The local center calls on the poster's thread, before the post returns; the
/// others call on the main queue (CF-D1, CF-D2). A running main run loop, `dispatchMain()` and an `async` main serve that queue; on Linux
/// `Thread.isMainThread` is false in the latter two.
///
/// On Apple it is a C function pointer, which captures nothing. Here it is a closure. Functions, static functions and closure literals
/// serve as they do there. What a closure captures lives until the registration is removed, and must be safe to use on the thread of
/// delivery; the compiler does not check that. Two things do not compile, and the page “Porting guide” of the module NotifyCenter has the
/// compiler's words for them: a parameter `callback: CFNotificationCallback` without `@escaping`, and `@convention(c)` in front of the
/// type.
///
/// In Swift 6 mode a closure literal in code of the main actor, which includes top-level code, belongs to that actor, and traps where
/// another thread calls it. Only the local center does that, where another thread posts to it. Outside of functions and isolated types,
/// write a constant of this type as `nonisolated(unsafe) let`, or write a function: a closure is not known to be `Sendable`, as a C
/// function pointer is.
public typealias CFNotificationCallback = (
    _ center: CFNotificationCenter?,
    _ observer: UnsafeMutableRawPointer?,
    _ name: CFNotificationName?,
    _ object: UnsafeRawPointer?,
    _ userInfo: CFDictionary?
) -> Void

// MARK: Functions

/// Registers a callback. The registration is in force on return: the callback gets what any process posts from then on (CF-A11). For
/// that, the Darwin and the distributed center wait for the bus to confirm it. Equal registrations stand side by side (CF-A5).
/// Earlier posts are not delivered (CF-A6).
///
/// - Parameters:
///   - center: without one, nothing happens.
///   - observer: what the callback gets, and what removes the registration. It is not followed, and not retained (CF-A2), except for a
///     string that `Unmanaged.passUnretained(_:)` gave out: that lives as long as the registration. A registration with `nil` cannot be
///     removed (CF-A1).
///   - callBack: what the center calls; without one, nothing happens (CF-A3).
///   - name: `nil` for any (CF-A4). The Darwin center never calls an observer of any name (CF-A8).
///   - object: `nil` for any. To the local center it is an address, which is not followed (CF-M5). To the distributed center it is a
///     `CFString`, read during this call and compared as text (CF-M4): `Unmanaged.passUnretained("…" as CFString).toOpaque()`. A string
///     whose pointer was made in another way must be kept until this returns. The Darwin center ignores it (CF-M6).
///   - suspensionBehavior: what happens while the distributed center is suspended.
///
/// The function reports to `UnthrownFailures` when the bus cannot be reached or refuses the match rule. The center keeps the observer all the
/// same: the callback gets what is posted once the bus is there and has accepted the rule. If the object is not a `CFString`, it reports
/// that, and registers nothing.
public func CFNotificationCenterAddObserver(
    _ center: CFNotificationCenter!,
    _ observer: UnsafeRawPointer!,
    _ callBack: CFNotificationCallback!,
    _ name: CFString!,
    _ object: UnsafeRawPointer!,
    _ suspensionBehavior: CFNotificationSuspensionBehavior
) {
    guard let center, let callBack else { return }
    UnthrownFailures.report(in: "CFNotificationCenterAddObserver") {
        try center.callbacks.add(
            observer.map { UInt(bitPattern: $0) },
            name: name.map { NotificationName($0 as String) },
            object: try center.object(object),
            suspensionBehavior: SuspensionBehavior(suspensionBehavior),
            handler: center.handler(callBack, observer: observer, keeping: recentStrings(at: observer, object))
        )
    }
}

/// Removes the observer's registrations for this name and object. After the return no call of theirs begins, and what waited for them is
/// dropped; a call that another thread has begun goes on (CF-R7). Where nothing is registered, nothing happens (CF-R5).
///
/// - Parameters:
///   - center: without one, nothing happens.
///   - observer: the pointer that was registered; without one, the function reports that to `UnthrownFailures` and
///     removes nothing (CF-R1).
///   - name: `nil` means any (CF-R2). A given name does not meet a registration for any name (CF-R3).
///   - object: `nil` means any (CF-R2). A given object does not meet a registration for any object (CF-R3). The distributed center
///     compares it as text (CF-R8), and it must be a `CFString`, as it must in ``CFNotificationCenterAddObserver(_:_:_:_:_:_:)``. The
///     Darwin center ignores it (CF-R6).
///
/// If the object is not a `CFString`, the function reports that to `UnthrownFailures` and removes nothing.
public func CFNotificationCenterRemoveObserver(
    _ center: CFNotificationCenter!,
    _ observer: UnsafeRawPointer!,
    _ name: CFNotificationName!,
    _ object: UnsafeRawPointer!
) {
    guard let center else { return }
    guard let observer else {
        let function = "CFNotificationCenterRemoveObserver"
        return UnthrownFailures.report(missing: "observer", in: function, attempted: "remove an observer")
    }
    UnthrownFailures.report(in: "CFNotificationCenterRemoveObserver") {
        let object = try center.object(object)
        center.callbacks.remove(UInt(bitPattern: observer), name: name?.name, object: object)
    }
}

/// Removes all of the observer's registrations with this center, and nobody else's (CF-R4); otherwise as
/// ``CFNotificationCenterRemoveObserver(_:_:_:_:)``.
///
/// - Parameters:
///   - center: without one, nothing happens.
///   - observer: the pointer that was registered; without one, the function reports that to `UnthrownFailures` and
///     removes nothing (CF-R1).
public func CFNotificationCenterRemoveEveryObserver(_ center: CFNotificationCenter!, _ observer: UnsafeRawPointer!) {
    guard let center else { return }
    guard let observer else {
        let function = "CFNotificationCenterRemoveEveryObserver"
        return UnthrownFailures.report(missing: "observer", in: function, attempted: "remove an observer")
    }
    center.callbacks.removeEvery(UInt(bitPattern: observer))
}

// MARK: Calls

extension CFNotificationCenter {
    /// The callback in the form that the centers call. It keeps these strings as long as it lives.
    fileprivate func handler(
        _ callback: @escaping CFNotificationCallback,
        observer: UnsafeRawPointer?,
        keeping strings: [KeptString]
    ) -> CallbackCenter.Handler {
        let observer = observer.map { UInt(bitPattern: $0) }
        // A C function on Apple, which any thread may call; see `CFNotificationCallback`.
        nonisolated(unsafe) let callback = callback
        return { notification in
            let observer = observer.flatMap { UnsafeMutableRawPointer(bitPattern: $0) }
            let name = CFNotificationName(notification.name)
            let userInfo = notification.content.dictionary
            if let text = notification.object?.text {
                let object = text as CFString
                withExtendedLifetime(object) {
                    // Passed as AnyObject, because the function for CFString would keep this string and displace a client's.
                    callback(self, observer, name, Unmanaged<AnyObject>.passUnretained(object).toOpaque(), userInfo)
                }
            } else {
                let object = notification.object?.address.flatMap { UnsafeRawPointer(bitPattern: $0) }
                callback(self, observer, name, object, userInfo)
            }
            withExtendedLifetime(strings) {}
        }
    }
}

extension CallbackCenter.Content {
    fileprivate var dictionary: CFDictionary? {
        switch self {
        case .none: nil
        case .local(let content):
            content.userInfo.flatMap(UnsafeRawPointer.init(bitPattern:)).map { address in
                Unmanaged<CFDictionary>.fromOpaque(address).takeUnretainedValue()
            }
        case .distributed(let userInfo): userInfo.foundationValue as CFDictionary
        }
    }
}
