// A program as it is written on Apple, with one line added: `import AppleNotifications`. It is compiled in Swift 5 mode.
//
// `ported-app run-loop NAME`, `ported-app cf-run-loop NAME`, `ported-app dispatch NAME`: says “ready”, then what it hears; a
// distributed notification of the same name that says so in its userInfo ends it. `ported-app post NAME [TEXT]` posts.
import AppleNotifications
import Foundation

let arguments = CommandLine.arguments
guard arguments.count > 2 else {
    print("usage: ported-app run-loop|cf-run-loop|dispatch|post NAME [TEXT]")
    exit(64)
}
setvbuf(stdout, nil, _IOLBF, 0)
let name = arguments[2]

func post(_ text: String?) {
    guard let text = text else {
        return CFNotificationCenterPostNotification(
            CFNotificationCenterGetDarwinNotifyCenter(),
            CFNotificationName(name as CFString),
            nil,
            nil,
            true
        )
    }
    let object = "ported-app" as CFString
    CFNotificationCenterPostNotificationWithOptions(
        CFNotificationCenterGetDistributedCenter(),
        CFNotificationName(rawValue: name as CFString),
        Unmanaged.passUnretained(object).toOpaque(),
        ["text": text] as CFDictionary,
        kCFNotificationDeliverImmediately
    )
}

if arguments[1] == "post" {
    post(arguments.count > 3 ? arguments[3] : nil)
    exit(0)
}

let listener = Listener(name)
listener.start()
print("ready")
switch arguments[1] {
case "run-loop": RunLoop.main.run()
case "cf-run-loop":
    CFRunLoopRun()
    print("stopped")
default: dispatchMain()
}
