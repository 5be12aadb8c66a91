// Re-exports the module with the header, for `CFNotificationCenterGetDistributedCenter`, and with it CoreFoundation.
@_exported public import CCoreFoundationNotifications
// CoreFoundation's module does not name its library; this one does.
import Foundation
import NotifyCenter

// Each function here defines a symbol that a C header declares. Swift code calls it through the header's declaration.
// `@usableFromInline` exports the symbol without adding a second Swift function of the same name.

// MARK: Centers

/// `CFNotificationCenterGetTypeID` (CF-T1).
@c(CFNotificationCenterGetTypeID)
@usableFromInline
func getTypeID() -> UInt { RuntimeClass.typeIdentifier }

/// `CFNotificationCenterGetLocalCenter` (CF-T2).
@c(CFNotificationCenterGetLocalCenter)
@usableFromInline
func getLocalCenter() -> UnsafeMutableRawPointer { Center.local.reference }

/// `CFNotificationCenterGetDarwinNotifyCenter` (CF-T2).
@c(CFNotificationCenterGetDarwinNotifyCenter)
@usableFromInline
func getDarwinNotifyCenter() -> UnsafeMutableRawPointer { Center.darwin.reference }

/// `CFNotificationCenterGetDistributedCenter` (CF-T3).
@c(CFNotificationCenterGetDistributedCenter)
@usableFromInline
func getDistributedCenter() -> UnsafeMutableRawPointer { Center.distributed.reference }

// MARK: Observers

/// `CFNotificationCenterAddObserver`.
@c(CFNotificationCenterAddObserver)
@usableFromInline
func addObserver(
    _ center: UnsafeRawPointer?,
    _ observer: UnsafeRawPointer?,
    _ callback: Callback?,
    _ name: UnsafeRawPointer?,
    _ object: UnsafeRawPointer?,
    _ suspensionBehavior: Int
) {
    // CF-A3
    guard let callback else { return }
    withCenter(center, "CFNotificationCenterAddObserver") { center throws in
        try center.add(
            ClientObserver(pointer: observer, callback: callback),
            name: name,
            object: object,
            suspensionBehavior: suspensionBehavior
        )
    }
}

/// `CFNotificationCenterRemoveObserver`.
@c(CFNotificationCenterRemoveObserver)
@usableFromInline
func removeObserver(
    _ center: UnsafeRawPointer?,
    _ observer: UnsafeRawPointer?,
    _ name: UnsafeRawPointer?,
    _ object: UnsafeRawPointer?
) {
    removeObserver("CFNotificationCenterRemoveObserver", center, observer) { center, observer in
        try center.remove(observer, name: name, object: object)
    }
}

/// `CFNotificationCenterRemoveEveryObserver`.
@c(CFNotificationCenterRemoveEveryObserver)
@usableFromInline
func removeEveryObserver(_ center: UnsafeRawPointer?, _ observer: UnsafeRawPointer?) {
    removeObserver("CFNotificationCenterRemoveEveryObserver", center, observer) { $0.removeEvery($1) }
}

private func removeObserver(
    _ function: String,
    _ center: UnsafeRawPointer?,
    _ observer: UnsafeRawPointer?,
    _ remove: (Center, UnsafeRawPointer) throws -> Void
) {
    withCenter(center, function) { center in
        // CF-R1
        UnthrownFailures.report(in: function, attempted: "remove an observer", "observer", observer) { observer in
            try remove(center, observer)
        }
    }
}

// MARK: Posting

/// `CFNotificationCenterPostNotification` (CF-P6).
@c(CFNotificationCenterPostNotification)
@usableFromInline
func postNotification(
    _ center: UnsafeRawPointer?,
    _ name: UnsafeRawPointer?,
    _ object: UnsafeRawPointer?,
    _ userInfo: UnsafeRawPointer?,
    _ deliverImmediately: UInt8
) {
    let options: PostingOptions = deliverImmediately == 0 ? [] : .deliverImmediately
    post("CFNotificationCenterPostNotification", center, name, object, userInfo, options)
}

/// `CFNotificationCenterPostNotificationWithOptions`.
@c(CFNotificationCenterPostNotificationWithOptions)
@usableFromInline
func postNotificationWithOptions(
    _ center: UnsafeRawPointer?,
    _ name: UnsafeRawPointer?,
    _ object: UnsafeRawPointer?,
    _ userInfo: UnsafeRawPointer?,
    _ options: UInt
) {
    let options = PostingOptions(rawValue: options)
    post("CFNotificationCenterPostNotificationWithOptions", center, name, object, userInfo, options)
}

private func post(
    _ function: String,
    _ center: UnsafeRawPointer?,
    _ name: UnsafeRawPointer?,
    _ object: UnsafeRawPointer?,
    _ userInfo: UnsafeRawPointer?,
    _ options: PostingOptions
) {
    withCenter(center, function) { center in
        // CF-P1
        UnthrownFailures.report(in: function, attempted: "post a notification", "name", name) { name in
            try center.post(name, object: object, userInfo: userInfo, options: options)
        }
    }
}

// MARK: Suspension

/// `_CFNotificationCenterSetSuspended` (CF-S1, CF-S13).
@c(_CFNotificationCenterSetSuspended)
@usableFromInline
func setSuspended(_ center: UnsafeRawPointer?, _ suspended: UInt8) {
    withCenter(center, "_CFNotificationCenterSetSuspended") { center in
        guard center.kind == .distributed else { return }
        DistributedNotifyCenter.default.isSuspended = suspended != 0
    }
}

/// `_CFNotificationCenterIsSuspended` (CF-S1, CF-S13).
@c(_CFNotificationCenterIsSuspended)
@usableFromInline
func isSuspended(_ center: UnsafeRawPointer?) -> UInt8 {
    var isSuspended = false
    withCenter(center, "_CFNotificationCenterIsSuspended") { center in
        isSuspended = center.kind == .distributed && DistributedNotifyCenter.default.isSuspended
    }
    return isSuspended ? 1 : 0
}
