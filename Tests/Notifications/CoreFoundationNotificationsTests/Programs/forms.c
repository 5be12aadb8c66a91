/* CFNotificationCenter in C, as in existing projects: each form once. Prints a line for each received notification, and
   exits. */
#include <CoreFoundationNotifications.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_t main_thread;
static int awaited = 4;

static const char *text(CFStringRef string) {
    static char buffer[128];
    if (!string || !CFStringGetCString(string, buffer, sizeof buffer, kCFStringEncodingUTF8)) return "-";
    return buffer;
}

static void heard_one(void) {
    if (--awaited == 0) CFRunLoopStop(CFRunLoopGetMain());
}

/* A context structure as observer, at the local center. */

typedef struct {
    int count;
} Settings;

static void settings_changed(CFNotificationCenterRef center, void *observer, CFNotificationName name, const void *object,
                             CFDictionaryRef user_info) {
    Settings *settings = observer;
    if (center != CFNotificationCenterGetLocalCenter() || object != settings || user_info) return;
    settings->count++;
    printf("local %s %d\n", text(name), settings->count);
}

static void try_local(void) {
    Settings settings = {0};
    CFNotificationCenterRef center = CFNotificationCenterGetLocalCenter();
    CFNotificationCenterAddObserver(center, &settings, settings_changed, CFSTR("settings"), &settings,
                                    CFNotificationSuspensionBehaviorDeliverImmediately);
    CFNotificationCenterPostNotification(center, CFSTR("settings"), &settings, NULL, TRUE);
    CFNotificationCenterPostNotification(center, CFSTR("settings"), NULL, NULL, TRUE);
    CFNotificationCenterRemoveObserver(center, &settings, CFSTR("settings"), NULL);
    CFNotificationCenterPostNotification(center, CFSTR("settings"), &settings, NULL, TRUE);
}

/* A table of names, one callback. */

static void named(CFNotificationCenterRef center, void *observer, CFStringRef name, const void *object,
                  CFDictionaryRef user_info) {
    (void)center, (void)object, (void)user_info;
    printf("block of names %s\n", text(name));
    if (!strcmp(text(name), "b")) CFNotificationCenterRemoveEveryObserver(CFNotificationCenterGetLocalCenter(), observer);
}

static void try_names(void) {
    const CFStringRef names[] = {CFSTR("a"), CFSTR("b")};
    for (size_t index = 0; index < sizeof names / sizeof *names; index++)
        CFNotificationCenterAddObserver(CFNotificationCenterGetLocalCenter(), (const void *)names, named, names[index], NULL, 0);
    for (size_t index = 0; index < sizeof names / sizeof *names; index++)
        CFNotificationCenterPostNotification(CFNotificationCenterGetLocalCenter(), names[index], NULL, NULL, FALSE);
    CFNotificationCenterPostNotification(CFNotificationCenterGetLocalCenter(), names[0], NULL, NULL, FALSE);
}

/* No observer pointer, at the Darwin center: the registration is permanent. */

static void changed(CFNotificationCenterRef center, void *observer, CFNotificationName name, const void *object,
                    CFDictionaryRef user_info) {
    (void)center, (void)observer, (void)object, (void)user_info;
    printf("darwin %s on %s thread\n", text(name), pthread_equal(pthread_self(), main_thread) ? "the main" : "another");
    heard_one();
}

/* Any name of an object, with a userInfo, at the distributed center. */

static void ordered(CFNotificationCenterRef center, void *observer, CFNotificationName name, const void *object,
                    CFDictionaryRef user_info) {
    (void)center;
    int total = 0;
    CFNumberRef number = user_info ? CFDictionaryGetValue(user_info, CFSTR("total")) : NULL;
    if (!number || !CFNumberGetValue(number, kCFNumberIntType, &total)) return;
    printf("%s of object %s: ", (const char *)observer, text(object));
    printf("%s, total %d\n", text(name), total);
    heard_one();
}

static void coalesced(CFNotificationCenterRef center, void *observer, CFNotificationName name, const void *object,
                      CFDictionaryRef user_info) {
    (void)center, (void)observer, (void)object, (void)user_info;
    printf("coalesce %s\n", text(name));
    heard_one();
}

static void end(CFNotificationCenterRef center, void *observer, CFNotificationName name, const void *object,
                CFDictionaryRef user_info) {
    (void)center, (void)observer, (void)object, (void)user_info;
    printf("%s\n", text(name));
    heard_one();
}

static void post_order(CFNotificationCenterRef center) {
    int total = 12;
    CFNumberRef number = CFNumberCreate(kCFAllocatorDefault, kCFNumberIntType, &total);
    CFMutableDictionaryRef user_info = CFDictionaryCreateMutable(
        kCFAllocatorDefault, 0, &kCFTypeDictionaryKeyCallBacks, &kCFTypeDictionaryValueCallBacks);
    CFDictionarySetValue(user_info, CFSTR("total"), number);
    CFStringRef object = CFStringCreateWithCString(NULL, "till-3", kCFStringEncodingUTF8);
    CFNotificationCenterPostNotificationWithOptions(center, CFSTR("order"), object, user_info,
                                                    kCFNotificationDeliverImmediately);
    CFRelease(object);
    CFRelease(user_info);
    CFRelease(number);
}

int main(void) {
    main_thread = pthread_self();
    setvbuf(stdout, NULL, _IOLBF, 0);
    try_local();
    try_names();
    CFNotificationCenterRef darwin = CFNotificationCenterGetDarwinNotifyCenter();
    CFNotificationCenterRef distributed = CFNotificationCenterGetDistributedCenter();
    CFNotificationCenterAddObserver(darwin, NULL, changed, CFSTR("changed"), NULL, 0);
    CFNotificationCenterAddObserver(distributed, "any name", ordered, NULL, CFSTR("till-3"),
                                    CFNotificationSuspensionBehaviorHold);
    CFNotificationCenterAddObserver(distributed, NULL, coalesced, CFSTR("order"), NULL,
                                    CFNotificationSuspensionBehaviorCoalesce);
    CFNotificationCenterAddObserver(distributed, NULL, end, CFSTR("end"), NULL, CFNotificationSuspensionBehaviorDrop);
    CFNotificationCenterPostNotification(darwin, CFSTR("changed"), NULL, NULL, TRUE);
    post_order(distributed);
    CFNotificationCenterPostNotification(distributed, CFSTR("end"), NULL, NULL, FALSE);
    CFRunLoopRun();
    return awaited == 0 ? 0 : 1;
}
