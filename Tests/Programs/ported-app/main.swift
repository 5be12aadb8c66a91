// A program as written for Apple's platforms, with one more line: `import AppleNotifications`. It is compiled in Swift
// 5 mode.
//
// `ported-app run-loop NAME`, `ported-app cf-run-loop NAME`, `ported-app dispatch NAME`: prints “ready”, then what it
// receives. A distributed notification of the same name ends it if the userInfo asks for that.
// `ported-app post NAME [TEXT]` posts. `ported-app forms KIND` uses each form of KIND (darwin, distributed, notify,
// top-level) once, and prints what each received.
import AppleNotifications
import Foundation

func say(_ line: String) { FileHandle.standardOutput.write(Data((line + "\n").utf8)) }

let arguments = CommandLine.arguments
guard arguments.count > 2 else {
    print("usage: ported-app run-loop|cf-run-loop|dispatch|post NAME [TEXT] | forms KIND")
    exit(64)
}
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

// Code at the top level, as in scripts.
var count = 0
if arguments[1] == "forms", name == "top-level" {
    let center = CFNotificationCenterGetDarwinNotifyCenter()
    CFNotificationCenterAddObserver(
        center,
        nil,
        { (center, observer, name, object, userInfo) in
            count += 1
            say("top level \(name!.rawValue as String) \(count)")
        },
        "com.example.forms.top" as CFString,
        nil,
        CFNotificationSuspensionBehavior.deliverImmediately
    )
    let token = DistributedNotificationCenter.default.addObserver(
        forName: NSNotification.Name("com.example.forms.top"),
        object: nil,
        queue: nil
    ) { _ in
        say("top level distributed")
    }
    CFNotificationCenterPostNotification(
        center,
        CFNotificationName("com.example.forms.top" as CFString),
        nil,
        nil,
        true
    )
    DistributedNotificationCenter.default.post(name: NSNotification.Name("com.example.forms.top"), object: nil)
    withExtendedLifetime(token) { CFRunLoopRun() }
}

if arguments[1] == "forms" {
    let observers: Any? =
        switch name {
        case "darwin": tryDarwinForms()
        case "distributed": tryDistributedForms()
        case "notify": tryNotifyForms()
        default: nil
        }
    withExtendedLifetime(observers) { RunLoop.main.run() }
}

let listener = Listener(name)
listener.start()
say("ready")
switch arguments[1] {
case "run-loop": RunLoop.main.run()
case "cf-run-loop":
    CFRunLoopRun()
    say("stopped")
default: dispatchMain()
}
