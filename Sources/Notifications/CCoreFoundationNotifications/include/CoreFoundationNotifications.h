#ifndef CORE_FOUNDATION_NOTIFICATIONS_H
#define CORE_FOUNDATION_NOTIFICATIONS_H

// What CFNotificationCenter.h does not declare on Linux. The functions that it does declare are defined by the same library.
//
// They return no errors. What they cannot do (no bus, a userInfo that cannot travel, an object that is no center) they tell on
// standard error, or to the observers of UnthrownFailures in Swift's module NotifyCenter. NULL where it has no meaning does nothing.
// So it is with a name or text that is no Unicode, because a surrogate stands alone in it: nothing is done, and it is told.
// The suspension behaviour 0 stands for coalesce; any other value that is none registers with coalesce too, and is told.
//
// Two things to know in Swift 6: a closure at the top level of a program, given as callback, is taken for one of the main actor,
// and traps when a local post calls it on another thread (make it a function, or a global of type CFNotificationCallback in
// another file); and CFNotificationCenter is not Sendable, so ask the getter each time instead of keeping a global.

#include <CoreFoundation/CoreFoundation.h>

CF_IMPLICIT_BRIDGING_ENABLED
CF_EXTERN_C_BEGIN

/// The distributed center: notifications with an object and a payload, between the processes of a login session.
///
/// Always the same object; nothing needs to be retained or released. It connects to the bus (`NOTIFY_CENTER_BUS`: `session`, `system`
/// or an address) with its first use.
///
/// Callbacks run on the main thread, while its run loop runs in one of the common modes, those of the process's own posts
/// included. A post's object must be a CFString, and its userInfo a dictionary of property-list values with CFString keys; what is
/// not is reported on standard error, and nothing is posted. May be called from any thread.
CF_EXPORT CFNotificationCenterRef CFNotificationCenterGetDistributedCenter(void);

/// Suspends the delivery to this process's observers of a distributed center, or resumes it and delivers what waits. What
/// waits meanwhile is up to each registration's CFNotificationSuspensionBehavior. Not nested: the same value twice has no effect.
///
/// Without effect on the other centers, which are never suspended, and on NULL. May be called from any thread.
CF_EXPORT void _CFNotificationCenterSetSuspended(CFNotificationCenterRef center, Boolean suspended);

/// Whether the delivery to this process's observers of a distributed center is suspended; false for the other centers and for
/// NULL. May be called from any thread.
CF_EXPORT Boolean _CFNotificationCenterIsSuspended(CFNotificationCenterRef center);

CF_EXTERN_C_END
CF_IMPLICIT_BRIDGING_DISABLED

#endif
