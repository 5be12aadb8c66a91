import Dispatch
import Foundation
import NotifyCenterTestKit
import Synchronization
import Testing

@testable import Basics
@testable import DBus
@testable import NotifyCenter

@Suite("The Darwin center over a real bus", .timeLimit(.minutes(10)))
struct DarwinNotifyCenterTests {
    private let bus: PrivateBus
    private let center: DarwinNotifyCenter

    init() throws {
        bus = try PrivateBus()
        center = DarwinNotifyCenter(bus: bus.bus)
    }

    // CF-P9, CF-P10, CF-A6, CF-A11
    @Test("the poster's own process is notified of posts after its registration")
    func selfDelivery() async throws {
        // Without an observer, this is not an error.
        try center.post("n")
        let names = Log()
        let observation = try await center.observe("n", delivery: .immediate) { names.add($0.name.rawValue) }
        try center.post("n")
        try center.post("other")
        try center.post("n")
        try await eventually("both arrive") { names.all.count == 2 }
        #expect(names.all == ["n", "n"])
        #expect(observation.counts.delivered == 2)
    }

    // CF-M3, CF-B1, CF-W8
    @Test("a name of any Unicode and any length reaches exactly its observers")
    func names() async throws {
        let names = [
            "", "SHARED_MODE_CURRENT_ACCOUNT_CHANGED", "com.example.my-app", "日本語 🎌", "a\0b", "it's",
            String(repeating: "long.", count: 2000), "a__b", "\u{E9}", "e\u{301}",
        ].map { NotificationName($0) }
        let received = Log()
        var observations: [NotificationObservation] = []
        for name in names {
            for observed in [name, NotificationName("\(name).")] {
                let observation = try await center.observe(observed, delivery: .immediate) { notification in
                    received.add("\(observed == name ? "" : "wrong: ")\(notification.name)")
                }
                observations.append(observation)
            }
        }
        for name in names { try center.post(name) }
        try await eventually("all arrive") { received.all.count >= names.count }
        #expect(received.all.map { NotificationName($0) } == names)
        withExtendedLifetime(observations) {}
    }

    // CF-W2
    @Test("a busy observer is notified once after the last post, and merges are counted")
    func coalescing() async throws {
        let gate = DispatchSemaphore(value: 0)
        let entered = Locked(0)
        let observation = try await center.observe("n") { _ in
            entered.withLock { $0 += 1 }
            gate.wait()
        }
        try center.post("n")
        try await eventually("the handler is busy") { entered.withLock { $0 } == 1 }
        for _ in 0..<1000 { try center.post("n") }
        try await eventually("all have arrived") { observation.counts.coalesced == 999 }
        gate.signal()
        try await eventually("one more call") { entered.withLock { $0 } == 2 }
        gate.signal()
        #expect(observation.counts == DeliveryCounts(delivered: 2, coalesced: 999, dropped: 0))
    }

    // CF-A5, CF-W12, CF-B2, CF-B3
    @Test("a thousand registrations of one name share one rule, and each is called")
    func sharedRule() async throws {
        var observations = try (0..<1000).map { _ in try center.observe("n", delivery: .immediate) { _ in } }
        #expect(center.statistics.matchRules == 1)
        #expect(center.statistics.observers == 1000)
        try center.post("n")
        try await eventually("each is called") { observations.allSatisfy { $0.counts.delivered == 1 } }
        // All but one of the users of the shared rule are removed.
        observations.removeLast(999)
        try center.post("n")
        try await eventually("the last one still is") { observations[0].counts.delivered == 2 }
        #expect(center.statistics.deliveries.delivered == 1001)
        observations = []
        #expect(center.statistics.matchRules == 0)
    }

    // CF-C2, CF-C4, CF-C7, CF-D9
    @Test("in an immediate handler, a flush fails and other calls work on any center")
    func reentrancy() async throws {
        let distributed = DistributedNotifyCenter(bus: bus.bus)
        let log = Log()
        let kept = Locked<[NotificationObservation]>([])
        let first = try await center.observe("first", delivery: .immediate) { [center] _ in
            do throws(DBusError) {
                try center.flush(timeout: .seconds(600))
            } catch {
                log.add(error.code == .wouldDeadlock ? "would deadlock" : "\(error)")
            }
            let inner = try? center.observe("inner") { _ in log.add("inner") }
            let second = try? distributed.observe("second", delivery: .immediate) { _ in
                log.add("second")
                let itself = kept.withLock { $0.last }
                itself?.cancel()
                try? center.post("third")
            }
            kept.withLock { $0 = [inner, second].compactMap(\.self) }
            try? center.post("inner")
            try? distributed.post("second")
        }
        let third = try await center.observe("third", delivery: .immediate) { _ in log.add("third") }
        try center.post("first")
        try await eventually("all are called") { log.all.count == 4 }
        try distributed.post("second")
        try center.post("third")
        try await eventually("the third is still there") { log.all.count == 5 }
        #expect(log.all.sorted() == ["inner", "second", "third", "third", "would deadlock"])
        withExtendedLifetime((first, third)) {}
    }

    @Test("a handler runs where its observer asked")
    func executors() async throws {
        let key = DispatchSpecificKey<String>()
        let queue = DispatchQueue(label: "mine")
        queue.setSpecific(key: key, value: "mine")
        let seen = Locked<[String: String]>([:])
        @Sendable func note(_ kind: String) {
            let thread = try? String(contentsOfFile: "/proc/thread-self/comm", encoding: .utf8)
            let place = DispatchQueue.getSpecific(key: key) ?? (thread == "dbus-read\n" ? "dbus-read" : "elsewhere")
            seen.withLock { $0[kind] = place }
        }
        let observations = [
            try await center.observe("n", delivery: .queue(queue)) { _ in note("queue") },
            try await center.observe("n", delivery: .immediate) { _ in note("immediate") },
            try await center.observe("n", delivery: .background) { _ in note("background") },
            try await center.observe("n", delivery: .executor(globalConcurrentExecutor)) { _ in note("executor") },
        ]
        try center.post("n")
        try await eventually("all are called") { seen.withLock { $0.count } == 4 }
        #expect(
            seen.withLock { $0 } == [
                "queue": "mine", "immediate": "dbus-read", "background": "elsewhere", "executor": "elsewhere",
            ]
        )
        withExtendedLifetime(observations) {}
    }

    @Test("a sequence is registered when made, and outlives loops until its last copy ends")
    func sequence() async throws {
        var unread: NotificationSequence<DarwinNotification>? = try await center.notifications(named: "unread")
        #expect(unread != nil && center.statistics.observers == 1)
        unread = nil
        #expect(center.statistics.observers == 0)
        var sequence: NotificationSequence<DarwinNotification>? = try await center.notifications(named: "n")
        for isWaiting in [true, false] {
            let task = Task { [sequence] in
                guard let sequence else { return }
                for await _ in sequence {}
            }
            // The loop has either taken a post and waits for the next, or not begun.
            if isWaiting {
                let taken = (sequence?.counts.delivered ?? 0) + 1
                try center.post("n")
                try await eventually("the loop has it") { sequence?.counts.delivered == taken }
            }
            task.cancel()
            await task.value
            #expect(center.statistics.observers == 1)
        }
        try center.post("n")
        var iterator = sequence?.makeAsyncIterator()
        #expect(await iterator?.next()?.name == "n")
        sequence = nil
        #expect(center.statistics.observers == 1)
        iterator = nil
        #expect(center.statistics.observers == 0)
        try await eventually("the rule is gone") { center.statistics.matchRules == 0 }
    }

    @Test("a blocked handler delays neither other observers nor tasks", .timeLimit(.minutes(5)))
    func slowHandlers() async throws {
        let isReleased = DispatchSemaphore(value: 0)
        // More than Dispatch adds to its global queue in the time that a test waits for a condition.
        let count = 150
        let slow = try (0..<count).map { number in try center.observe("slow.\(number)") { _ in isReleased.wait() } }
        defer { for _ in 0..<count { isReleased.signal() } }
        let quick = try await center.observe("quick") { _ in }
        for number in 0..<count { try center.post("slow.\(number)") }
        try center.post("quick")
        try await eventually("all are called") { slow.allSatisfy { $0.counts.delivered == 1 } }
        try await eventually("the quick one, too") { quick.counts.delivered == 1 }
        let isDone = Locked(false)
        Task.detached { isDone.withLock { $0 = true } }
        try await eventually("a task runs") { isDone.withLock { $0 } }
    }

    // CF-B9, architecture D1
    @Test("a name that comes through another name's interface is ignored and counted")
    func smuggledName() async throws {
        let observation = try await center.observe("allowed", delivery: .immediate) { _ in }
        let target = try await center.observe("guarded", delivery: .immediate) { _ in }
        let stranger = try DBusConnection.open(bus.bus)
        try stranger.send(try .post([.string("guarded")], on: "org.notifycenter.Darwin1.allowed"))
        try center.post("allowed")
        try await eventually("the genuine one arrives") { observation.counts.delivered == 1 }
        #expect(target.counts.delivered == 0)
        #expect(center.statistics.malformed == 1)
    }

    // architecture D1
    @Test("the bus's policy can prevent posts of a name")
    func policy() async throws {
        let guarded = try PrivateBus(
            .init(denials: [#"<deny send_interface="org.notifycenter.Darwin1.SHARED_MODE_CURRENT_ACCOUNT_CHANGED"/>"#])
        )
        let center = DarwinNotifyCenter(bus: guarded.bus)
        let names = Log()
        let observations = try ["SHARED_MODE_CURRENT_ACCOUNT_CHANGED", "free"].map { name in
            try center.observe(NotificationName(name), delivery: .immediate) { names.add($0.name.rawValue) }
        }
        try center.post("SHARED_MODE_CURRENT_ACCOUNT_CHANGED")
        try center.post("free")
        try await eventually("the free one arrives") { !names.all.isEmpty }
        #expect(names.all == ["free"])
        withExtendedLifetime(observations) {}
    }
}
