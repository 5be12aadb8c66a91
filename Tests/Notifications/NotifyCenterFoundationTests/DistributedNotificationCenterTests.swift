import Foundation
import NotifyCenter
import NotifyCenterFoundation
import NotifyCenterTestKit
import Testing

@Suite("DistributedNotificationCenter over a real bus")
struct DistributedNotificationCenterTests {
    private let bus: PrivateBus
    private let center: DistributedNotificationCenter

    init() throws {
        bus = try PrivateBus()
        center = DistributedNotificationCenter(bus: bus.bus)
    }

    /// Waits until all earlier posts have been offered to the observers: posts of one process keep their order.
    private func settle() async throws {
        let heard = Log()
        let token = center.addObserver(forName: .init("settled"), object: nil, queue: nil) { _ in heard.add("") }
        center.post(name: .init("settled"), object: nil)
        try await eventually("the last post is heard") { !heard.all.isEmpty }
        center.removeObserver(token)
    }

    // CF-X1
    @Test("the function, the property and the type return the same default center")
    func defaultCenter() {
        #expect(DistributedNotificationCenter.default() === DistributedNotificationCenter.default())
        // The property in three forms: with its type inferred, as a member of a given type, and as a default argument.
        let inferred = DistributedNotificationCenter.default
        let (given, called): (DistributedNotificationCenter, DistributedNotificationCenter?) = (.default, .default())
        func argument(_ center: DistributedNotificationCenter = .default) -> DistributedNotificationCenter { center }
        let ofType = DistributedNotificationCenter.forType(.localNotificationCenterType)
        for center in [inferred, given, called, argument(), argument(.default()), ofType] {
            #expect(center === DistributedNotificationCenter.default())
        }
    }

    // CF-T7, CF-T8
    @Test("raw values are Apple's, and names convert in both directions")
    func rawValues() {
        typealias Behavior = DistributedNotificationCenter.SuspensionBehavior
        #expect([Behavior.drop, .coalesce, .hold, .deliverImmediately].map(\.rawValue) == [1, 2, 3, 4])
        let options: [DistributedNotificationCenter.Options] = [.deliverImmediately, .postToAllSessions]
        #expect(options.map(\.rawValue) == [1, 2])
        #expect(NotificationName(Notification.Name("n")) == "n")
        #expect(Notification.Name(NotificationName("n")) == Notification.Name("n"))
    }

    // CF-X3, CF-U6, CF-P12
    @Test("every form of post arrives, with object and userInfo")
    func forms() async throws {
        let log = Log()
        center.addObserver(forName: .init("n"), object: nil, queue: nil) { notification in
            let userInfo = notification.userInfo.map { "\($0.count) \($0["a"] as? Int ?? 0)" } ?? "none"
            log.add("\(notification.object as? String ?? "-") \(userInfo)")
        }
        center.post(name: .init("n"), object: nil)
        center.post(name: .init("n"), object: "1", userInfo: ["a": 1])
        center.post(name: .init("n"), object: "2", userInfo: [:])
        center.post(Notification(name: .init("n")))
        center.post(Notification(name: .init("n"), object: "3", userInfo: ["a": 3]))
        center.post(Notification(name: .init("n"), object: NSString("4")))
        center.postNotificationName(.init("n"), object: "5")
        center.postNotificationName(.init("n"), object: "6", userInfo: ["a": 6], deliverImmediately: true)
        center.postNotificationName(.init("n"), object: "7", userInfo: ["a": 7], options: [.deliverImmediately])
        try await settle()
        #expect(log.all == ["- none", "1 1 1", "2 0 0", "- none", "3 1 3", "4 none", "5 none", "6 1 6", "7 1 7"])
    }

    // CF-D2
    @Test("without a queue, and on OperationQueue.main, blocks run on the main queue")
    func mainQueue() async throws {
        let log = Log()
        for queue in [nil, OperationQueue.main] {
            center.addObserver(forName: .init("n"), object: nil, queue: queue) { _ in
                // Traps if it is not on the main queue.
                MainActor.assumeIsolated { log.add("main") }
            }
        }
        center.post(name: .init("n"), object: nil)
        try await eventually("both are called") { log.all.count == 2 }
        #expect(log.all == ["main", "main"])
    }

    // CF-X8
    @Test("a registration outlives its token until removal, which is idempotent")
    func tokens() async throws {
        let log = Log()
        // The token of this registration is not kept.
        center.addObserver(forName: .init("n"), object: nil, queue: nil) { _ in log.add("kept") }
        let token = center.addObserver(forName: .init("n"), object: nil, queue: nil) { _ in log.add("removed") }
        center.post(name: .init("n"), object: nil)
        try await eventually("both are called") { log.all == ["kept", "removed"] }
        center.removeObserver(token)
        center.removeObserver(token)
        center.removeObserver(NSObject())
        center.removeObserver("no observer")
        center.post(name: .init("n"), object: nil)
        try await settle()
        #expect(log.all == ["kept", "removed", "kept"])
    }

    // CF-R2, CF-R3, CF-R8, CF-X4
    @Test("a removal compares name and object, and nil means any")
    func criteria() async throws {
        typealias Criteria = (name: String?, object: String?)
        let cases: [(registered: Criteria, given: Criteria, isRemoved: Bool)] = [
            (("n", "o"), (nil, nil), true), (("n", "o"), ("n", "o"), true), (("n", "o"), ("m", nil), false),
            (("n", "o"), (nil, "p"), false), (("n", nil), (nil, "o"), false), ((nil, "o"), ("n", nil), false),
            (("n", "\u{e9}"), (nil, "e\u{301}"), false),
        ]
        let log = Log()
        for (index, (registered, given, _)) in cases.enumerated() {
            let token = center.addObserver(
                forName: registered.name.map { .init($0) },
                object: registered.object,
                queue: nil
            ) { notification in if notification.name.rawValue == "n" { log.add("\(index)") } }
            center.removeObserver(token, name: given.name.map { .init($0) }, object: given.object)
        }
        center.post(name: .init("n"), object: "o")
        center.post(name: .init("n"), object: "\u{e9}")
        try await settle()
        #expect(Set(log.all) == Set(cases.indices.filter { !cases[$0].isRemoved }.map { "\($0)" }))
    }

    // CF-X9, CF-A11
    @Test("a sequence has the posts from before its loop, in order, and ends with its task")
    func sequence() async throws {
        let notifications = center.notifications(named: .init("n"), object: "o")
        for number in 0..<100 { center.post(name: .init("n"), object: "o", userInfo: ["number": number]) }
        center.post(name: .init("n"), object: "other")
        let log = Log()
        let task = Task {
            for await notification in notifications { log.add("\(notification.userInfo?["number"] as? Int ?? -1)") }
            log.add("end")
        }
        try await eventually("all are heard") { log.all.count == 100 }
        task.cancel()
        await task.value
        #expect(log.all == (0..<100).map { "\($0)" } + ["end"])
    }

    // CF-X7
    @Test("an unread sequence keeps the newest 4096, counts the rest and ends with its copy")
    func sequenceBuffer() async throws {
        let underlying = DistributedNotifyCenter(bus: bus.bus)
        let center = DistributedNotificationCenter(underlying)
        var notifications: DistributedNotificationCenter.Notifications? = center.notifications(named: nil)
        for number in 0..<4106 { center.post(name: .init("n"), object: "\(number)") }
        try await eventually("ten have given way") { notifications?.droppedCount == 10 }
        var iterator = notifications?.makeAsyncIterator()
        #expect(await iterator?.next()?.object as? String == "10")
        #expect(underlying.statistics.observers == 1)
        notifications = nil
        iterator = nil
        #expect(underlying.statistics.observers == 0)
    }
}
