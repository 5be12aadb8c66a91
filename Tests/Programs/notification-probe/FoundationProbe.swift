import Dispatch
import Foundation
import NotifyCenterFoundation

/// Source as people write it for macOS: `observe NAME`, `dispatch NAME`, `post NAME OBJECT TEXT`.
@MainActor
func runFoundationProbe(_ arguments: [String]) {
    let center = DistributedNotificationCenter.default()
    let name = Notification.Name(arguments[1])
    if arguments[0] == "post" {
        return center.postNotificationName(
            name,
            object: arguments[2],
            userInfo: ["text": arguments[3], "flag": true],
            deliverImmediately: true
        )
    }
    center.addObserver(forName: name, object: nil, queue: nil) { notification in
        let object = notification.object as? String ?? "-"
        let text = notification.userInfo?["text"] as? String ?? "-"
        let flag = notification.userInfo?["flag"] as? Bool ?? false
        say("\(notification.name.rawValue) \(object) \(text) \(flag) main:\(Thread.isMainThread)")
    }
    say("ready")
    if arguments[0] == "observe" { RunLoop.main.run() } else { dispatchMain() }
}
