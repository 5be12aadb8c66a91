import NotifyCenter

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
