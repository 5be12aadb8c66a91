// Listens to the broadcast of shared device mode in plain C, with the same API as on Apple's platforms. Prints a line
// for each broadcast.

#include <CoreFoundation/CoreFoundation.h>
#include <stdio.h>

// Runs on the main thread. A Darwin notification carries only its name. An app asks here who is signed in, and deletes
// the data of all earlier users.
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
