import Basics
import DBus
import Dispatch
import NotifyCenter
import NotifyCenterTestKit
import Testing

@Suite("The distributed center over a real bus", .timeLimit(.minutes(10)))
struct DistributedNotifyCenterTests {
    private let bus: PrivateBus
    private let center: DistributedNotifyCenter

    init() throws {
        bus = try PrivateBus()
        center = DistributedNotifyCenter(bus: bus.bus)
    }

    // CF-M2, CF-M4, CF-M7, CF-D6
    @Test("names and objects match as the table says between real connections")
    func matching() async throws {
        let log = Log()
        var observations: [NotificationObservation] = []
        let registrations: [(String, NotificationName?, String?)] = [
            ("n/any", "n", nil), ("n/A", "n", "A"), ("any/any", nil, nil), ("any/A", nil, "A"),
        ]
        for (label, name, object) in registrations {
            observations.append(
                try await center.observe(name, object: object, delivery: .immediate) { notification in
                    log.add("\(label) \(notification.name) \(notification.object ?? "-")")
                }
            )
        }
        for (name, object) in [("n", nil), ("n", "A"), ("n", "B"), ("m", "A")] as [(NotificationName, String?)] {
            try center.post(name, object: object)
        }
        try await eventually("all arrive") { log.all.count == 10 }
        #expect(
            log.all == [
                "n/any n -", "any/any n -", "n/any n A", "n/A n A", "any/any n A", "any/A n A", "n/any n B",
                "any/any n B", "any/any m A", "any/A m A",
            ]
        )
        withExtendedLifetime(observations) {}
    }

    @Test("drops for a slow observer follow its buffering and are counted")
    func drops() async throws {
        let gate = DispatchSemaphore(value: 0)
        let (newest, oldest) = (Log(), Log())
        var observations: [NotificationObservation] = []
        let policies: [(Log, Buffering)] = [(newest, .bufferingNewest(3)), (oldest, .bufferingOldest(3))]
        for (log, buffering) in policies {
            observations.append(
                try await center.observe("n", buffering: buffering) { notification in
                    log.add(notification.object ?? "")
                    if notification.object == "0" { gate.wait() }
                }
            )
        }
        try center.post("n", object: "0")
        try await eventually("both are busy") { newest.all.count == 1 && oldest.all.count == 1 }
        for number in 1...10 { try center.post("n", object: "\(number)") }
        try await eventually("all have arrived") { observations.allSatisfy { $0.counts.dropped == 7 } }
        for _ in observations { gate.signal() }
        try await eventually("the rest is delivered") { newest.all.count == 4 && oldest.all.count == 4 }
        #expect([newest.all, oldest.all] == [["0", "8", "9", "10"], ["0", "1", "2", "3"]])
        #expect(center.statistics.deliveries.dropped == 14)
        let sequence = try await center.notifications(named: "s", buffering: .bufferingNewest(2))
        for number in 0..<5 { try center.post("s", object: "\(number)") }
        try await eventually("the sequence counts too") { sequence.counts.dropped == 3 }
    }

    // architecture D2, CF-B4
    @Test(
        "observers of more names than the bus grants rules for all get their posts",
        .enabled(if: PrivateBus.Daemon.chosen == .daemon, "dbus-broker counts rules by user")
    )
    func moreNamesThanRules() async throws {
        let small = try PrivateBus(.init(matchRulesPerConnection: 80))
        let center = DistributedNotifyCenter(bus: small.bus)
        let observations = try (0..<200).map { number in
            try center.observe("name.\(number)", delivery: .immediate) { _ in }
        }
        #expect(center.statistics.coveredMatchRules > 0)
        for number in 0..<200 { try center.post("name.\(number)") }
        try center.post("not.asked.for")
        try await eventually("each is heard") { observations.allSatisfy { $0.counts.delivered == 1 } }
    }

    // CF-S1, CF-S8, CF-S14
    @Test("a suspension holds back what a loop has not taken, and cancelling drops it", .timeLimit(.minutes(5)))
    func suspendedSequence() async throws {
        let sequence = try await center.notifications(named: "n", suspensionBehavior: .hold)
        var iterator = sequence.makeAsyncIterator()
        for number in 0..<3 { try center.post("n", object: "\(number)") }
        try await eventually("they wait") { center.statistics.waiting == 3 }
        #expect(await iterator.next()?.object == "0")
        center.isSuspended = true
        try center.post("n", object: "3")
        try await eventually("they wait") { center.statistics.waiting == 3 }
        let taken = Log()
        let loop = Task {
            for await notification in sequence { taken.add(notification.object ?? "") }
        }
        let witness = try await center.observe("now", delivery: .immediate, suspensionBehavior: .drop) { _ in }
        #expect(taken.all.isEmpty)
        center.isSuspended = false
        try await eventually("all come") { taken.all == ["1", "2", "3"] }
        center.isSuspended = true
        try center.post("n", object: "4")
        try await eventually("it waits") { center.statistics.waiting == 1 }
        sequence.cancel()
        await loop.value
        center.isSuspended = false
        try center.post("now")
        try await eventually("later posts arrive") { witness.counts.delivered == 1 }
        #expect(taken.all == ["1", "2", "3"])
    }

    @Test("two loops on one sequence share its elements, and both are woken")
    func twoLoops() async throws {
        let sequence = try await center.notifications(named: "n", buffering: .unbounded)
        let taken = Log()
        await withTaskGroup { group in
            for _ in 0..<2 {
                group.addTask {
                    for await notification in sequence {
                        taken.add(notification.object ?? "")
                        if taken.all.count == 200 { sequence.cancel() }
                    }
                }
            }
            for number in 0..<200 { try? center.post("n", object: "\(number)") }
        }
        #expect(Set(taken.take()) == Set((0..<200).map { "\($0)" }))
    }
}
