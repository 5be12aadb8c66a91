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
    // CF-R1
    guard let observer else { return }
    withCenter(center, "CFNotificationCenterRemoveObserver") { center throws in
        try center.remove(observer, name: name, object: object)
    }
}

/// `CFNotificationCenterRemoveEveryObserver`.
@c(CFNotificationCenterRemoveEveryObserver)
@usableFromInline
func removeEveryObserver(_ center: UnsafeRawPointer?, _ observer: UnsafeRawPointer?) {
    // CF-R1
    guard let observer else { return }
    withCenter(center, "CFNotificationCenterRemoveEveryObserver") { center in center.removeEvery(observer) }
}
