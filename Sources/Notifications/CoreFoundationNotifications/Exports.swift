// `CFNotificationCenterGetDistributedCenter`, and CoreFoundation with it, for those who import this module.
@_exported public import CCoreFoundationNotifications
// CoreFoundation's module does not say which library it is in; this one does.
import Foundation
