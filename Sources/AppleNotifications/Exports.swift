/// `CFNotificationCenter` for Swift files that import Foundation alone, spelled as Apple's SDKs spell it. Such a file gets one more
/// line, `import AppleNotifications`, and otherwise stays as it is.
///
/// Which product is for whom:
///
/// | the file | the product |
/// |---|---|
/// | Swift, `import Foundation`, says `"…" as CFString` | AppleNotifications |
/// | Swift, `import CoreFoundation`; C, Objective-C, C++ | CoreFoundationNotifications |
/// | `DistributedNotificationCenter` | NotifyCenterFoundation, or AppleNotifications, which brings it along |
///
/// One file cannot have both: Linux's CoreFoundation declares the same names for its own types, and each use would be ambiguous.
/// A file that needs something else of CoreFoundation imports just that: `import func CoreFoundation.CFAbsoluteTimeGetCurrent`.
/// The run loop functions of a program that only listens, such as `CFRunLoopRun`, come along with this module.
///
/// What differs from Apple's, beyond what the symbols say themselves:
///
/// - Errors that Apple's functions have no way to tell, such as a bus that cannot be reached, are lines on standard error, or go
///   to the handler of `UnthrownFailures`.
/// - The local center and Foundation's `NotificationCenter.default` are two centers; a post to one is not seen by the other.
/// - The Darwin center reaches the processes of one bus, which `NOTIFY_CENTER_BUS` names; of the session's where it is unset.
@_exported public import NotifyCenterFoundation

// What a program that only listens ends with. These are CoreFoundation's own, so that nothing is ambiguous.
@_exported public import class CoreFoundation.CFRunLoop
@_exported public import func CoreFoundation.CFRunLoopGetCurrent
@_exported public import func CoreFoundation.CFRunLoopGetMain
@_exported public import func CoreFoundation.CFRunLoopRun
@_exported public import func CoreFoundation.CFRunLoopStop
// Where the failures go that Apple's functions cannot throw.
@_exported public import enum NotifyCenter.UnthrownFailures
