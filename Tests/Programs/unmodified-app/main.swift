// Observes the Darwin notification `arguments[1]` in a run loop, and prints a line for each. With a second argument,
// posts that name and exits.
import CoreFoundation
import Foundation

func name(_ text: String) -> CFString { CFStringCreateWithCString(nil, text, CFStringBuiltInEncodings.UTF8.rawValue) }

let center = CFNotificationCenterGetDarwinNotifyCenter()

if CommandLine.arguments.count > 2 {
    CFNotificationCenterPostNotification(center, name(CommandLine.arguments[2]), nil, nil, true)
    exit(0)
}

CFNotificationCenterAddObserver(
    center,
    nil,
    { center, observer, name, object, userInfo in
        let length = CFStringGetLength(name)
        var characters = [UniChar](repeating: 0, count: length)
        CFStringGetCharacters(name, CFRange(location: 0, length: length), &characters)
        let isMain = Thread.isMainThread ? "main" : "another"
        print("heard \(String(decoding: characters, as: UTF16.self)) on the \(isMain) thread")
        fflush(nil)
    },
    name(CommandLine.arguments[1]),
    nil,
    .deliverImmediately
)
print("listening")
fflush(nil)
CFRunLoopRun()
