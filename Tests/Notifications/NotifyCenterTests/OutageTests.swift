import Foundation
@_spi(Extensions) import NotifyCenterTestKit
import Synchronization
import Testing

@testable import Basics
@testable import DBus
@testable import NotifyCenter

@Suite("A center during and after an outage of the bus", .timeLimit(.minutes(5)))
struct OutageTests {
    @Test("a new connection can be watched, also at the address of a freed connection")
    func watching() throws {
        let bus = try PrivateBus()
        // Watching a new connection first does not prevent it from finding the bus.
        for number in 0..<50 {
            let connection = try DBusConnection.whenThere(bus.bus)
            let events = try connection.onEvent { _ in }
            let lease = try connection.addMatch(MatchRule(interface: "com.example.first\(number)"))
            withExtendedLifetime((events, lease)) {}
        }
        var kept: PostRoute?
        var address: ObjectIdentifier?
        do {
            let connection = try DBusConnection.whenThere(bus.bus)
            kept = PostRoute.of(connection)
            address = ObjectIdentifier(connection)
        }
        // The allocator usually reuses the address at once.
        for _ in 0..<100 {
            let connection = try DBusConnection.whenThere(bus.bus)
            guard ObjectIdentifier(connection) == address else { continue }
            #expect(PostRoute.of(connection) !== kept)
            return
        }
    }

    // CF-B4, CF-W10
    @Test(
        "a rule refused after a restart is reported once and restored by a later bus",
        .enabled(if: PrivateBus.Daemon.chosen == .daemon, "the policy is dbus-daemon's")
    )
    func refusedRule() async throws {
        let directory = try TemporaryDirectory("policy")
        let policy = "\(directory.path)/policy.conf"
        var options = PrivateBus.Options()
        options.configurationFiles = [policy]
        func write(_ rules: String) throws {
            let text = #"<busconfig><policy context="mandatory">\#(rules)</policy></busconfig>"#
            try text.write(toFile: policy, atomically: true, encoding: .utf8)
        }
        try write("")
        let bus = try PrivateBus(options)
        let darwin = DarwinNotifyCenter(bus: bus.bus)
        let distributed = DistributedNotifyCenter(bus: bus.bus)
        // This name needs no escape in a rule.
        let name = NotificationName("com.example.refused\(UUID().uuidString.filter { $0 != "-" })")
        let failures = Log()
        // Other tests cause failures at the same time.
        let reports = UnthrownFailures.observe { failure in
            if "\(failure)".contains(name.rawValue) { failures.add("\(failure)") }
        }
        let observations = [
            try await darwin.observe(name) { _ in }, try await distributed.observe(name) { _ in },
            try await distributed.observe(name) { _ in },
        ]
        #expect(darwin.statistics.matchRulesNotInForce == 0)
        bus.stop()
        try write(#"<deny send_interface="org.freedesktop.DBus" send_member="AddMatch"/>"#)
        try bus.start()
        try await eventually("both rules are reported") { failures.all.count >= 2 }
        #expect(darwin.statistics.matchRulesNotInForce == 2)
        #expect(darwin.statistics.reconnections == 1)
        #expect(distributed.statistics.matchRulesNotInForce == 2)
        bus.stop()
        try write("")
        try bus.start()
        try await eventually("the rules are in force") { darwin.statistics.matchRulesNotInForce == 0 }
        #expect(failures.all.count == 2)
        #expect(darwin.statistics.reconnections == 2)
        try distributed.post(name)
        try await eventually("it is heard") { observations[1].counts.delivered == 1 }
        withExtendedLifetime((observations, reports, directory)) {}
    }

    @Test("on a bus that hangs up calls fail at once, and old observers recover later")
    func hangingUp() async throws {
        try await withTaskExecutorPreference(OwnThread()) {
            try await judgeLoss()
            try await judgeNew()
        }
    }

    private func judgeLoss() async throws {
        let bus = try PrivateBus()
        let center = DarwinNotifyCenter(bus: bus.bus)
        let observation = try await center.observe("n", delivery: .immediate) { _ in }
        bus.stop()
        let hanging = try HangingUpBus(inPlaceOf: bus)
        try await eventually("the center connects again and again") { hanging.connections.count > 2 }
        #expect(center.statistics.matchRulesNotInForce == 1)
        try await judgeHangingUp(center)
        // A post sent before the loss is noticed is lost.
        try await eventually("posts are refused") { (try? center.post("n")) == nil }
        #expect(center.statistics.observers == 1 && center.statistics.matchRules == 1)
        hanging.stop()
        try bus.start()
        try await eventually("the rule is in force") { center.statistics.matchRulesNotInForce == 0 }
        try center.post("n")
        try await eventually("it is heard") { observation.counts.delivered == 1 }
    }

    private func judgeNew() async throws {
        let hanging = try HangingUpBus()
        let center = DarwinNotifyCenter(bus: hanging.bus)
        for _ in 0..<5 { try await judgeHangingUp(center) }
        #expect(center.statistics.observers == 0 && center.statistics.matchRules == 0)
        // The kernel may accept a post before the bus hangs up.
        try? center.post("n")
        #expect(throws: DBusError.self) { try center.flush(timeout: .seconds(20)) }
    }

    private func judgeHangingUp(_ center: DarwinNotifyCenter) async throws {
        let began = ContinuousClock.now
        await #expect(throws: DBusError.self) { try await center.observe("other") { _ in } }
        await #expect(throws: DBusError.self) { try await center.flush() }
        #expect(ContinuousClock.now - began < .seconds(20), "no call waits 25 s for a response")
    }

    @Test("a center that found no bus leaves no thread, and connects once there is a bus")
    func lateBus() async throws {
        let bus = try PrivateBus()
        bus.stop()
        let connection = try DBusConnection.whenThere(bus.bus)
        let other = DarwinNotifyCenter(connection: connection)
        let observing = #expect(throws: DBusError.self) { try other.observe("n") { _ in } }
        #expect(!connection.core.state.withLock { $0.isReading }, "an observation that failed leaves no thread")
        let posting = #expect(throws: DBusError.self) { try other.post("n") }
        #expect([observing?.code, posting?.code] == [.noBus, .noBus])
        let center = DarwinNotifyCenter(bus: bus.bus)
        #expect(throws: DBusError.self) { try center.post("n") }
        await #expect(throws: DBusError.self) { try await center.observe("n") { _ in } }
        #expect(throws: DBusError.self) { try center.flush(timeout: .seconds(1)) }
        try bus.start()
        var observation: NotificationObservation?
        try await eventually("it is in force") {
            observation = try? await center.observe("n", delivery: .immediate) { _ in }
            return observation != nil
        }
        try center.post("n")
        try await center.flush()
        #expect(observation?.counts.delivered == 1, "a flush brings what the process itself posted")
    }

    // Outages: the column of a bus that is stopped.
    @Test(
        "on a stopped bus each function times out, and posts arrive when it resumes",
        .enabled(if: PrivateBus.Daemon.chosen == .daemon, "the process of dbus-broker is another than its launcher")
    )
    func stoppedBus() async throws { try await withTaskExecutorPreference(OwnThread()) { try await judgeStoppedBus() } }

    private func judgeStoppedBus() async throws {
        let (bus, full) = (try PrivateBus(), try PrivateBus())
        let connection = try DBusConnection.open(bus.bus)
        let center = DarwinNotifyCenter(connection: connection)
        let observation = try await center.observe("n", delivery: .immediate) { _ in }
        let flooding = try DBusConnection.open(full.bus)
        let flooder = DistributedNotifyCenter(connection: flooding)
        try flooder.post("before")
        // The documented time limits, before the test shortens them.
        #expect(connection.core.state.withLock { $0.ruleTimeout } == .seconds(25))
        #expect(flooding.core.sendTimeout.withLock { $0 } == .seconds(30))
        connection.core.state.withLock { $0.ruleTimeout = .milliseconds(100) }
        flooding.core.sendTimeout.withLock { $0 = .milliseconds(100) }
        bus.suspend()
        full.suspend()
        defer { for bus in [bus, full] { bus.resume() } }
        // The kernel's buffer has room for this post.
        try center.post("n")
        func end(_ work: () async throws(DBusError) -> Void) async -> DBusError.Code? {
            do throws(DBusError) {
                try await work()
                return nil
            } catch {
                return error.code
            }
        }
        async let observing = end { () async throws(DBusError) in _ = try await center.observe("late") { _ in } }
        async let flushing = end { () async throws(DBusError) in try await center.flush(timeout: .milliseconds(100)) }
        async let posting = onThread {
            let content = ["text": PropertyListValue.string(String(repeating: "x", count: 100_000))]
            do throws(DBusError) {
                while true { try flooder.post("flood", userInfo: content) }
            } catch {
                return error.code
            }
        }
        let ends = [await observing, await flushing, await posting]
        #expect(ends == [.timedOut, .timedOut, .timedOut])
        #expect(center.statistics.observers == 1 && center.statistics.reconnections == 0)
        bus.resume()
        try await eventually("the observer that was in place hears") { observation.counts.delivered == 1 }
    }
}
