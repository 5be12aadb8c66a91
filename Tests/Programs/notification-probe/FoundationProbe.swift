import Dispatch
import Foundation
import NotifyCenterFoundation

/// The same type as in the tests.
struct Order: DistributedNotificationCenter.MainActorMessage {
    static let name = Notification.Name("com.example.order")
    var count: Int
    var notes: [String]
}

/// Source as people write it for macOS: `observe NAME`, `dispatch NAME`, `post NAME OBJECT TEXT`, `messages`,
/// `post-message SUBJECT COUNT`.
@MainActor
func runFoundationProbe(_ arguments: [String]) throws {
    let center = DistributedNotificationCenter.default()
    let name = Notification.Name(arguments.dropFirst().first ?? "")

    switch arguments.first {
    case "observe", "dispatch":
        center.addObserver(forName: name, object: nil, queue: nil) { notification in
            let object = notification.object as? String ?? "-"
            let text = notification.userInfo?["text"] as? String ?? "-"
            let flag = notification.userInfo?["flag"] as? Bool ?? false
            say("\(notification.name.rawValue) \(object) \(text) \(flag) main:\(Thread.isMainThread)")
        }
        say("ready")
        if arguments.first == "observe" { RunLoop.main.run() } else { dispatchMain() }
    case "post":
        let userInfo: [AnyHashable: Any] = ["text": arguments[3], "flag": true]
        center.postNotificationName(name, object: arguments[2], userInfo: userInfo, deliverImmediately: true)
    case "messages":
        let token = try center.addObserver(for: Order.self) { say("\($0.count) \($0.notes)") }
        say("ready")
        RunLoop.main.run()
        center.removeObserver(token)
    case "post-message":
        let order = Order(count: Int(arguments[2]) ?? 0, notes: ["a", "b"])
        try center.post(order, subject: arguments[1])
    default:
        exit(64)
    }
}
