import NotifyCenter

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
    post(
        "CFNotificationCenterPostNotification",
        center,
        name,
        object,
        userInfo,
        deliverImmediately == 0 ? [] : .deliverImmediately
    )
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
    post(
        "CFNotificationCenterPostNotificationWithOptions",
        center,
        name,
        object,
        userInfo,
        PostingOptions(rawValue: options)
    )
}

private func post(
    _ function: String,
    _ center: UnsafeRawPointer?,
    _ name: UnsafeRawPointer?,
    _ object: UnsafeRawPointer?,
    _ userInfo: UnsafeRawPointer?,
    _ options: PostingOptions
) {
    // CF-P1
    guard let name else { return }
    withCenter(center, function) { center throws in
        try center.post(name, object: object, userInfo: userInfo, options: options)
    }
}
