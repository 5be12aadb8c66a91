// Listens to the broadcast of shared device mode in plain C, as it is done on Apple's platforms, and prints a line for each.

#include <CoreFoundation/CoreFoundation.h>
#include <stdio.h>

// On the main thread. A Darwin notification says nothing but its name: here an app asks who is signed in, and cleans up after
// those who are not.
static void sharedModeAccountChanged(CFNotificationCenterRef center, void *observer, CFNotificationName name,
                                     const void *object, CFDictionaryRef userInfo) {
    (void)center, (void)observer, (void)object, (void)userInfo;
    char text[256];
    if (CFStringGetCString(name, text, sizeof text, kCFStringEncodingUTF8)) {
        printf("heard %s\n", text);
        fflush(stdout);
    }
}

int main(void) {
    CFNotificationCenterAddObserver(CFNotificationCenterGetDarwinNotifyCenter(), NULL, sharedModeAccountChanged,
                                    CFSTR("SHARED_MODE_CURRENT_ACCOUNT_CHANGED"), NULL,
                                    CFNotificationSuspensionBehaviorDeliverImmediately);
    printf("listening\n");
    fflush(stdout);
    CFRunLoopRun();
}
