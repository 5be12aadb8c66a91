import DBusTransport
import Foundation
import NotifyCenterTestKit
import Synchronization
import Testing

@testable import NotifyCenter

@Suite("What a center does while the bus is away, and after it", .timeLimit(.minutes(5)))
struct OutageTests {
    /// A bus that reads from a file whether it accepts registrations.
    private final class ChangingBus: Sendable {
        let bus: PrivateBus
        private let folder: URL
        private var policy: URL { folder.appending(path: "policy.conf") }

        init() throws {
            folder = URL(filePath: NSTemporaryDirectory()).appending(path: "changing-bus-\(UUID().uuidString)")
            try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
            var options = PrivateBus.Options()
            options.configurationFiles = [folder.appending(path: "policy.conf").path]
            try Self.write(refusesRules: false, to: folder.appending(path: "policy.conf"))
            bus = try PrivateBus(options)
        }

        deinit { try? FileManager.default.removeItem(at: folder) }

        func restart(refusesRules: Bool) throws {
            bus.stop()
            try Self.write(refusesRules: refusesRules, to: policy)
            try bus.start()
        }

        private static func write(refusesRules: Bool, to file: URL) throws {
            let denial =
                #"<deny send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus" send_member="AddMatch"/>"#
            try """
            <!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
             "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
            <busconfig><policy context="mandatory">\(refusesRules ? denial : "")</policy></busconfig>
            """
            .write(to: file, atomically: true, encoding: .utf8)
        }
    }

    @Test("a connection at the address of one that is gone tells of its own failures")
    func addressOfAnother() throws {
        let bus = try PrivateBus()
        var kept: Observation?
        var address: ObjectIdentifier?
        do {
            let connection = try DBusConnection.whenThere(bus.bus)
            kept = try BusConnections.reportFailures(of: connection)
            address = ObjectIdentifier(connection)
        }
        // The allocator mostly gives the address again at once.
        for _ in 0..<100 {
            let connection = try DBusConnection.whenThere(bus.bus)
            guard ObjectIdentifier(connection) == address else { continue }
            #expect(try BusConnections.reportFailures(of: connection) !== kept)
            return
        }
    }

    // CF-B4, CF-W10
    @Test(
        "a rule that a restarted bus refuses is reported once and counted, and is in force again when a later bus grants it",
        .enabled(if: PrivateBus.Daemon.chosen == .daemon, "the policy is dbus-daemon's")
    )
    func refusedRule() async throws {
        let changing = try ChangingBus()
        let (darwin, distributed) = (
            DarwinNotifyCenter(bus: changing.bus.bus), DistributedNotifyCenter(bus: changing.bus.bus)
        )
        // A name that needs no escape in a rule.
        let name = NotificationName("com.example.refused\(UUID().uuidString.filter { $0 != "-" })")
        let failures = Locked<[String]>([])
        // Other tests cause failures at the same time.
        let reports = UnthrownFailures.observe { failure in
            let text = "\(failure)"
            if text.contains(name.rawValue) { failures.withLock { $0.append(text) } }
        }
        let observations = [
            try await darwin.observe(name) { _ in }, try await distributed.observe(name) { _ in },
            try await distributed.observe(name) { _ in },
        ]
        #expect(darwin.statistics.matchRulesNotInForce == 0)
        try changing.restart(refusesRules: true)
        try await eventually("both rules are reported") { failures.withLock { $0.count } >= 2 }
        #expect(darwin.statistics.matchRulesNotInForce == 2)
        #expect(darwin.statistics.reconnections == 1)
        #expect(distributed.statistics.matchRulesNotInForce == 2)
        try changing.restart(refusesRules: false)
        try await eventually("the rules are in force") { darwin.statistics.matchRulesNotInForce == 0 }
        #expect(failures.withLock { $0.count } == 2)
        #expect(darwin.statistics.reconnections == 2)
        try distributed.post(name)
        try await eventually("it is heard") { observations[1].counts.delivered == 1 }
        withExtendedLifetime((observations, reports)) {}
    }

    // CF-B4
    @Test("observing throws during an outage, and registers nothing")
    func observingDuringAnOutage() async throws {
        let bus = try PrivateBus()
        let center = DarwinNotifyCenter(bus: bus.bus)
        var first: NotificationObservation? = try await center.observe("n") { _ in }
        bus.stop()
        // Until the loss is noticed, the rule is in force.
        try await eventually("the loss is noticed") { center.statistics.matchRulesNotInForce == 1 }
        await #expect(throws: DBusError.self) { try await center.observe("n") { _ in } }
        await #expect(throws: DBusError.self) { try await center.observe("other") { _ in } }
        #expect(center.statistics.observers == 1)
        #expect(center.statistics.matchRules == 1)
        first = nil
        #expect(center.statistics.matchRules == 0)
        withExtendedLifetime(first) {}
    }

    @Test("a center that found no bus connects once there is one")
    func lateBus() async throws {
        let bus = try PrivateBus()
        bus.stop()
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

    @Test("whoever watches a fresh connection first finds the bus with what comes next")
    func watchingFirst() throws {
        let bus = try PrivateBus()
        for number in 0..<50 {
            let connection = try DBusConnection.whenThere(bus.bus)
            let events = try connection.onEvent { _ in }
            let lease = try connection.addMatch(MatchRule(interface: "com.example.first\(number)"))
            withExtendedLifetime((events, lease)) {}
        }
    }

    // CF-P11
    @Test(
        "what a process posted and flushed arrives, even where it ends at once by _exit while more comes in than it reads"
    )
    func flushBeforeTheEnd() async throws {
        let bus = try PrivateBus()
        let center = DarwinNotifyCenter(bus: bus.bus)
        let observation = try await center.observe("n", delivery: .immediate) { _ in }
        for _ in 0..<20 {
            let poster = try ChildProcess(ChildProcess.built("center-probe"), environment: bus.environment)
            try poster.write("hear n")
            try poster.write("vanish n 500")
            #expect(await poster.exitStatus() == 0)
        }
        try await eventually("all arrive, and not \(observation.counts.delivered)") {
            observation.counts.delivered == 10_000
        }
    }
}
