import Dispatch
import Foundation
import NotifyCenterFoundation

/// Writes without stdio, because a buffered line would be lost with the process.
@Sendable func report(_ line: String) { FileHandle.standardOutput.write(Data((line + "\n").utf8)) }

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
            report("\(notification.name.rawValue) \(object) \(text) \(flag) main:\(Thread.isMainThread)")
        }
        report("ready")
        if arguments.first == "observe" { RunLoop.main.run() } else { dispatchMain() }
    case "post":
        let (object, text) = (arguments[2], arguments[3])
        center.postNotificationName(
            name,
            object: object,
            userInfo: ["text": text, "flag": true],
            deliverImmediately: true
        )
    case "messages":
        let token = try center.addObserver(for: Order.self) { report("\($0.count) \($0.notes)") }
        report("ready")
        RunLoop.main.run()
        center.removeObserver(token)
    case "post-message":
        let order = Order(count: Int(arguments[2]) ?? 0, notes: ["a", "b"])
        try center.post(order, subject: arguments[1])
    default:
        exit(64)
    }
}
