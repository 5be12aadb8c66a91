// A ported file imports Foundation and this module, and finds `DistributedNotificationCenter` and `UnthrownFailures` too.
@_exported public import NotifyCenterFoundation
