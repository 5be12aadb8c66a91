/// An option of ``CFNotificationCenterPostNotificationWithOptions(_:_:_:_:_:)``: suspended observers get it at once too, whatever
/// their behaviour (CF-P5).
public let kCFNotificationDeliverImmediately: CFOptionFlags = 1 << 0

/// An option of ``CFNotificationCenterPostNotificationWithOptions(_:_:_:_:_:)``: to the observers of all login sessions (CF-P7). The
/// system bus reaches all of them anyway; on another bus the post is refused, and the refusal reported.
public let kCFNotificationPostToAllSessions: CFOptionFlags = 1 << 1
