import Foundation
import NotifyCenter
import NotifyCenterFoundation
import NotifyCenterTestKit
import Testing

@Suite("Suspension of DistributedNotificationCenter")
struct FoundationSuspensionTests {
    private typealias Behavior = DistributedNotificationCenter.SuspensionBehavior

    private struct Ping: DistributedNotificationCenter.AsyncMessage {
        static let name = Notification.Name("n")
        var number: Int
    }

    private let bus: PrivateBus
    private let underlying: DistributedNotifyCenter
    private let center: DistributedNotificationCenter
    private let log = Log()

    init() throws {
        bus = try PrivateBus()
        underlying = DistributedNotifyCenter(bus: bus.bus)
        center = DistributedNotificationCenter(underlying)
    }

    private func observe(_ behavior: Behavior?, _ name: String, queue: OperationQueue? = nil) {
        let block: @Sendable (Notification) -> Void = { [log] notification in
            let object = notification.object as? String ?? "-"
            log.add("\(behavior.map { "\($0)" } ?? "default") \(notification.name.rawValue) \(object)")
        }
        let name = Notification.Name(name)
        if let behavior {
            center.addObserver(forName: name, object: nil, suspensionBehavior: behavior, queue: queue, using: block)
        } else {
            center.addObserver(forName: name, object: nil, queue: queue, using: block)
        }
    }

    /// Waits until all posts have arrived.
    private func settle(received: UInt64) async throws {
        try await eventually("all has arrived") { underlying.statistics.received == received }
    }

    // CF-S3, CF-S4, CF-S5, CF-S8, CF-S11, CF-X2, CF-S1, CF-S9, CF-X5
    @Test("drop loses, coalesce keeps the last, hold keeps all; the default coalesces")
    func behaviors() async throws {
        #expect(!center.suspended)
        for isSuspended in [true, true, false, false] {
            center.suspended = isSuspended
            #expect([center.suspended, underlying.isSuspended] == [isSuspended, isSuspended])
        }
        for behavior in [Behavior.drop, .coalesce, .hold, nil] { observe(behavior, "n") }
        center.suspended = true
        for object in ["A", "A", "B"] { center.post(name: .init("n"), object: object) }
        try await settle(received: 3)
        #expect(log.all.isEmpty)
        center.suspended = false
        try await eventually("what waited is delivered") { log.all.count == 7 }
        let byBehavior = Dictionary(grouping: log.all) { $0.prefix { $0 != " " } }
        #expect(
            byBehavior == [
                "hold": ["hold n A", "hold n A", "hold n B"], "coalesce": ["coalesce n A", "coalesce n B"],
                "default": ["default n A", "default n B"],
            ]
        )
    }

    // CF-S6, CF-S16, CF-P5, CF-S7, CF-X3
    @Test("an immediate notification comes after the waiting ones")
    func immediately() async throws {
        observe(.hold, "n")
        observe(.deliverImmediately, "m")
        center.suspended = true
        let posts: [(String, (String) -> Void)] = [
            ("deliverImmediately m", { center.post(name: .init("m"), object: $0) }),
            ("hold n", { center.postNotificationName(.init("n"), object: $0, deliverImmediately: true) }),
            ("hold n", { center.postNotificationName(.init("n"), object: $0, options: [.deliverImmediately]) }),
        ]
        var expected: [String] = []
        for (index, (heard, post)) in posts.enumerated() {
            center.post(name: .init("n"), object: "waiting \(index)")
            post("\(index)")
            expected += ["hold n waiting \(index)", "\(heard) \(index)"]
            try await eventually("both are delivered") { log.all == expected }
        }
        #expect(center.suspended)
    }

    // CF-S8
    @Test("notifications queued as operations wait too, and come once and in order")
    func operationQueue() async throws {
        let queue = OperationQueue()
        queue.isSuspended = true
        observe(.hold, "n", queue: queue)
        for number in 1...2 { center.post(name: .init("n"), object: "\(number)") }
        try await eventually("both are operations") { queue.operationCount == 2 }
        center.suspended = true
        center.post(name: .init("n"), object: "3")
        try await settle(received: 3)
        queue.isSuspended = false
        try await eventually("the operations have run") { queue.operationCount == 0 }
        #expect(log.all.isEmpty)
        center.suspended = false
        center.post(name: .init("n"), object: "4")
        try await eventually("the last is delivered") { log.all.last == "hold n 4" }
        try await eventually("the queue has run") { queue.operationCount == 0 }
        #expect(log.all == (1...4).map { "hold n \($0)" })
    }

    // CF-S4, CF-S12
    @Test("sequences and message observers coalesce too, and removal drops their backlog")
    func messages() async throws {
        let sequence = center.notifications(named: .init("n"))
        let kept = try center.addObserver(for: Ping.self) { [log] in log.add("kept \($0.number)") }
        let removed = try center.addObserver(for: Ping.self) { [log] in log.add("removed \($0.number)") }
        center.suspended = true
        for number in 1...3 { try center.post(Ping(number: number)) }
        try await settle(received: 3)
        center.removeObserver(removed)
        center.suspended = false
        var iterator = sequence.makeAsyncIterator()
        #expect(await iterator.next()?.userInfo?["number"] as? Int == 3)
        try await eventually("the last one is delivered") { log.all == ["kept 3"] }
        withExtendedLifetime(kept) {}
    }
}
