import DBusTransport
public import Foundation
import NotifyCenter
import NotifyCenterFoundation

/// Posts; the same as ``CFNotificationCenterPostNotificationWithOptions(_:_:_:_:_:)`` with ``kCFNotificationDeliverImmediately``, or
/// with no option (CF-P6).
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

/// Posts. The local center calls its observers before this returns (CF-D1). The others never call within the post (CF-P10): on return
/// the kernel has the notification, and nobody reports who receives it (CF-P11).
///
/// - Parameters:
///   - center: without one, nothing happens.
///   - name: without one, the function reports that to `UnthrownFailures` and posts nothing (CF-P1).
///   - object: `nil` reaches only the observers of any object (CF-P2). To the local center it is an address, which it hands on and does
///     not follow (CF-P3). To the distributed center it is a `CFString`, copied during this call:
///     `Unmanaged.passUnretained("…" as CFString).toOpaque()`. A string whose pointer was made in another way must be kept until this
///     returns. The Darwin center ignores it (CF-W1).
///   - userInfo: the local center hands on the very object, whatever it holds (CF-U3). To the distributed center it is a property list,
///     copied (CF-U1, CF-P12): at most 1 MiB in all (CF-U9) and 20 arrays and dictionaries deep. An empty one arrives as empty, and `nil` as
///     `nil` (CF-U6). The Darwin center ignores it (CF-U4).
///   - options: ``kCFNotificationDeliverImmediately``, ``kCFNotificationPostToAllSessions``, both or `0`. Only the distributed center
///     looks at them (CF-P8, CF-W1).
///
/// If a bus cannot be reached, an object is not a `CFString`, or a userInfo is not a property list or exceeds the bounds, the function
/// reports to `UnthrownFailures` and posts nothing.
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
        // The local center hands on the very objects.
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
