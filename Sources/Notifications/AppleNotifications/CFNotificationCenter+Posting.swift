import DBus
public import Foundation
import NotifyCenter
import NotifyCenterFoundation

/// Posts a notification. Equivalent to ``CFNotificationCenterPostNotificationWithOptions(_:_:_:_:_:)`` with
/// ``kCFNotificationDeliverImmediately`` or with no option (CF-P6).
public func CFNotificationCenterPostNotification(
    _ center: CFNotificationCenter!,
    _ name: CFNotificationName!,
    _ object: UnsafeRawPointer!,
    _ userInfo: CFDictionary!,
    _ deliverImmediately: Bool
) {
    guard let center else { return }
    guard let name else {
        let function = "CFNotificationCenterPostNotification"
        return UnthrownFailures.report(missing: "name", in: function, attempted: "post a notification")
    }
    UnthrownFailures.report(in: "CFNotificationCenterPostNotification") {
        try center.post(name, object, userInfo, deliverImmediately ? .deliverImmediately : [])
    }
}

/// Posts a notification. The local center calls its observers before this returns (CF-D1). The others never call
/// observers within the post (CF-P10): on return the kernel has the notification, and no report tells who receives it
/// (CF-P11).
///
/// - Parameters:
///   - center: the center; with `nil`, nothing happens.
///   - name: the name; with `nil`, the function reports that to `UnthrownFailures` and posts nothing (CF-P1).
///   - object: `nil` reaches only the observers of any object (CF-P2). The local center hands the address on and does
///     not dereference it (CF-P3). The distributed center copies a `CFString` during this call:
///     `Unmanaged.passUnretained("…" as CFString).toOpaque()`. If you make the pointer in another way, keep the string
///     until this function returns. The Darwin center ignores the object (CF-W1).
///   - userInfo: the local center hands on the object itself, whatever it holds (CF-U3). The distributed center copies
///     a property list (CF-U1, CF-P12) of at most 1 MiB in all (CF-U9) and at most 20 levels of arrays and
///     dictionaries. An empty one arrives as empty, and `nil` as `nil` (CF-U6). The Darwin center ignores it (CF-U4).
///   - options: ``kCFNotificationDeliverImmediately``, ``kCFNotificationPostToAllSessions``, both or `0`. Only the
///     distributed center reads them (CF-P8, CF-W1).
///
/// The function reports to `UnthrownFailures` and posts nothing if the bus cannot be reached, the object is not a
/// `CFString`, or the userInfo is not a property list or exceeds the limits.
public func CFNotificationCenterPostNotificationWithOptions(
    _ center: CFNotificationCenter!,
    _ name: CFNotificationName!,
    _ object: UnsafeRawPointer!,
    _ userInfo: CFDictionary!,
    _ options: CFOptionFlags
) {
    guard let center else { return }
    guard let name else {
        let function = "CFNotificationCenterPostNotificationWithOptions"
        return UnthrownFailures.report(missing: "name", in: function, attempted: "post a notification")
    }
    UnthrownFailures.report(in: "CFNotificationCenterPostNotificationWithOptions") {
        try center.post(name, object, userInfo, PostingOptions(rawValue: options))
    }
}

extension CFNotificationCenter {
    fileprivate func post(
        _ name: CFNotificationName,
        _ object: UnsafeRawPointer?,
        _ userInfo: CFDictionary?,
        _ options: PostingOptions
    ) throws {
        let text = name.rawValue
        // The local center hands on the objects themselves.
        try withExtendedLifetime((text, userInfo)) {
            let content = try callbacks.content(name: address(of: text), userInfo: userInfo.map(address)) {
                let userInfo = Unmanaged<CFDictionary>.fromOpaque($0).takeUnretainedValue()
                return try PropertyListReader(root: "userInfo").dictionary(userInfo)
            }
            try callbacks.post(name.name, object: try self.object(object), content: content, options: options)
        }
    }

    private func address(of object: AnyObject) -> UnsafeRawPointer {
        UnsafeRawPointer(Unmanaged.passUnretained(object).toOpaque())
    }
}
