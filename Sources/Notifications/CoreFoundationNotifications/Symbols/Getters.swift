// Each function of this folder defines a symbol that a C header declares. Swift code calls it by the header's declaration:
// `@usableFromInline` makes the symbol visible, without a second Swift function of that name beside the header's.

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
