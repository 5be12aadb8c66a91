import AppleNotifications
import Foundation

/// Registers, posts and removes as ported code does, and keeps what it heard.
///
/// Its address is the observer, so it removes its registrations before it ends.
final class Observer: Sendable {
    let center: CFNotificationCenter
    let heard = Heard()

    init(_ center: CFNotificationCenter) { self.center = center }
    deinit { CFNotificationCenterRemoveEveryObserver(center, Unmanaged.passUnretained(self).toOpaque()) }

    var pointer: UnsafeMutableRawPointer { Unmanaged.passUnretained(self).toOpaque() }

    /// Has each notification noted as `label` and its name. By capturing, not by the pointer: one for any name is called for what
    /// other tests post, also while this object ends.
    func add(
        _ name: String?,
        object: UnsafeRawPointer? = nil,
        behavior: CFNotificationSuspensionBehavior = .deliverImmediately,
        label: String
    ) {
        CFNotificationCenterAddObserver(
            center,
            pointer,
            { [heard] _, _, name, _, _ in heard.note("\(label) \(name!.rawValue as String)") },
            name as CFString?,
            object,
            behavior
        )
    }

    func remove(_ name: String?, object: UnsafeRawPointer? = nil) {
        CFNotificationCenterRemoveObserver(
            center,
            pointer,
            name.map { CFNotificationName($0 as CFString) },
            object
        )
    }
}

func post(
    _ center: CFNotificationCenter,
    _ name: String,
    object: UnsafeRawPointer? = nil,
    userInfo: CFDictionary? = nil,
    immediately: Bool = true
) {
    CFNotificationCenterPostNotification(center, CFNotificationName(name as CFString), object, userInfo, immediately)
}
