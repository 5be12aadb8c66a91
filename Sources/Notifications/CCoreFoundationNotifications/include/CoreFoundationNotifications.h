#ifndef CORE_FOUNDATION_NOTIFICATIONS_H
#define CORE_FOUNDATION_NOTIFICATIONS_H

// The declarations that CFNotificationCenter.h lacks on Linux. The library that defines these functions defines the
// declared ones too.
//
// The functions return no errors. A function that fails writes a line to standard error, or calls the observers of
// UnthrownFailures in Swift's module NotifyCenter, and does nothing else. It fails if there is no bus, a userInfo
// cannot be sent, an object is not a center, or a text has an unpaired surrogate. There is one exception: without a
// bus, or if the bus refuses the rule, CFNotificationCenterAddObserver keeps the observer, which receives notifications
// once the bus is there and has accepted the rule. Where NULL has no meaning, the function does nothing; it reports a
// missing observer or name, unless the center is NULL too. The suspension behaviour 0 stands for coalesce. A number
// other than 0 to 4 registers with coalesce too, and is reported.
//
// On the Darwin and the distributed center, CFNotificationCenterAddObserver waits for the bus, 25 seconds at most. A
// post waits while the bus does not keep up, and with a reserved name of the Darwin center for notifyd: 30 seconds at
// most.
//
// Two notes for Swift 6. A closure literal that is passed as callback at the top level of a program belongs to the main
// actor. It traps when a local post calls it on another thread. Write a function instead, or a global of type
// CFNotificationCallback in another file. CFNotificationCenter is not Sendable: call the getter each time instead of
// keeping a global.

#include <CoreFoundation/CoreFoundation.h>

CF_IMPLICIT_BRIDGING_ENABLED
CF_EXTERN_C_BEGIN

/// The distributed center: notifications with an object and a userInfo, between the processes of a login session.
///
/// The function always returns the same object; there is nothing to retain or release. It connects to the bus
/// (`NOTIFY_CENTER_BUS`: `session`, `system` or an address) with its first use.
///
/// Callbacks run on the main queue, also for the process's own posts. A main run loop in a common mode and
/// dispatch_main() serve that queue. A post's object must be a CFString, and its userInfo a dictionary of property-list
/// values with CFString keys; otherwise the post does nothing and reports that. May be called from any thread.
CF_EXPORT CFNotificationCenterRef CFNotificationCenterGetDistributedCenter(void);

/// Suspends the delivery to this process's observers of a distributed center, or resumes it and delivers what waits.
/// Each registration's CFNotificationSuspensionBehavior says what waits during a suspension. Suspensions do not nest:
/// the same value twice has no effect. The function does not wait for the deliveries.
///
/// It has no effect on the other centers, which are never suspended, or with NULL. May be called from any thread.
CF_EXPORT void _CFNotificationCenterSetSuspended(CFNotificationCenterRef center, Boolean suspended);

/// Returns whether the delivery to this process's observers of a distributed center is suspended; false for the other
/// centers and for NULL. May be called from any thread.
CF_EXPORT Boolean _CFNotificationCenterIsSuspended(CFNotificationCenterRef center);

CF_EXTERN_C_END
CF_IMPLICIT_BRIDGING_DISABLED

#endif
