// A ported file imports Foundation and this module, and finds `DistributedNotificationCenter` and `UnthrownFailures` too.
@_exported public import NotifyCenterFoundation

// What a program that only listens ends with. These are CoreFoundation's own, so that nothing is ambiguous.
@_exported public import class CoreFoundation.CFRunLoop
@_exported public import func CoreFoundation.CFRunLoopGetCurrent
@_exported public import func CoreFoundation.CFRunLoopGetMain
@_exported public import func CoreFoundation.CFRunLoopRun
@_exported public import func CoreFoundation.CFRunLoopStop
