// The toolchain's header, and the functions of CFNotificationCenter that it hides on Linux, because source for Apple's
// platforms includes only this header.
#include_next <CoreFoundation/CoreFoundation.h>
#include <CoreFoundationNotifications.h>
