import DBusTransport
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
    guard let center, let name else { return }
    reportingFailure("CFNotificationCenterPostNotification") {
        try center.post(name, object, userInfo, deliverImmediately ? .deliverImmediately : [])
    }
}

/// Posts. The local center calls its observers before this returns (CF-D1). The others never within the call (CF-P10): on return the
/// kernel has the post, so that the process may end at once, and who receives it is not reported (CF-P11).
///
/// - Parameters:
///   - center: nothing happens without one.
///   - name: nothing happens without one (CF-P1).
///   - object: `nil` reaches only the observers of any object (CF-P2). To the local center an address, handed on and not followed
///     (CF-P3). To the distributed one a `CFString`, copied during this call:
///     `Unmanaged.passUnretained("…" as CFString).toOpaque()`. A pointer that was made in another way needs the string kept until this
///     returns. To the Darwin one nothing (CF-W1).
///   - userInfo: to the local center any dictionary, handed on as the very object (CF-U3). To the distributed one a property list,
///     copied (CF-U1, CF-P12): at most 16 MiB in all and 20 arrays and dictionaries deep; an empty one arrives as empty, and `nil` as `nil`
///     (CF-U6). To the Darwin one nothing (CF-U4).
///   - options: ``kCFNotificationDeliverImmediately``, ``kCFNotificationPostToAllSessions``, both or `0`; for the distributed center.
///
/// What cannot be posted is posted to nobody, and reported to `UnthrownFailures`: a bus that cannot be reached, an object that is no
/// `CFString`, a userInfo that is no property list or beyond the bounds, all sessions where the bus serves one.
public func CFNotificationCenterPostNotificationWithOptions(
    _ center: CFNotificationCenter!,
    _ name: CFNotificationName!,
    _ object: UnsafeRawPointer!,
    _ userInfo: CFDictionary!,
    _ options: CFOptionFlags
) {
    guard let center, let name else { return }
    reportingFailure("CFNotificationCenterPostNotificationWithOptions") {
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
            let content = try self.content(text, userInfo)
            try callbacks.post(name.name, object: try self.object(object), content: content, options: options)
        }
    }

    private func content(
        _ name: CFString,
        _ userInfo: CFDictionary?
    ) throws(PropertyListError) -> CallbackCenter.Content {
        switch kind {
        case .local: .local(.init(name: address(of: name), userInfo: userInfo.map(address)))
        case .darwin: .none
        // As the object that it is: to turn one that contains itself into a Swift dictionary first would not end.
        case .distributed: if let userInfo { .distributed(try UserInfo(propertyListObject: userInfo)) } else { .none }
        }
    }

    private func address(of object: AnyObject) -> UInt { UInt(bitPattern: Unmanaged.passUnretained(object).toOpaque()) }
}
