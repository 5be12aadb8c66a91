// The toolchain's header, and the functions of CFNotificationCenter that it hides on Linux: source for Apple's platforms includes no other header.
#include_next <CoreFoundation/CoreFoundation.h>
#include <CoreFoundationNotifications.h>
