import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Testing

/// The functions while the bus is lost, stopped, back, or has never been there (Rules, a.12).
@Suite struct OutageTests {
    let bus: PrivateBus
    let (listener, poster): (Probe, Probe)

    init() throws {
        bus = try PrivateBus()
        (listener, poster) = (try Probe(bus.environment), try Probe(bus.environment))
    }

    /// Waits until a registration of the listener is in force: posts the name until the listener gets a post.
    private func hears(_ token: Int32, _ name: String) async throws {
        let before = listener.calls(token)
        try await eventually("\(name) is heard") {
            _ = try await poster.ask("post \(name)")
            return listener.calls(token) > before
        }
    }

    @Test func duringAnOutageFunctionsThatNeedTheBusFailAndRegistrationsAreInForceAfterIt() async throws {
        let (handled, checked) = (
            try await listener.register("dispatch", "order"), try await listener.register("check", "order")
        )
        let early = try await listener.register("dispatch", "menu")
        _ = try await listener.ask("read \(checked)")
        bus.stop()
        // The poster has never had a bus.
        let first = try await poster.replies("post menu", "check menu", "dispatch menu", "suspend-process 1")
        #expect(first == ["status 9"])
        #expect(try await poster.ask("cancel 2") == "status 2")
        try await eventually { try await listener.ask("post order") == "status 9" }
        let (late, second) = (
            try await listener.register("dispatch", "menu"), try await listener.register("dispatch", "order")
        )
        let lateCheck = try await listener.register("check", "menu")
        #expect(try await listener.ask("read \(lateCheck)") == "check 1")
        #expect(try await listener.ask("read \(lateCheck)") == "check 0")
        // A registration that is cancelled before the bus is back receives nothing.
        let cancelled = try await listener.register("dispatch", "menu")
        #expect(try await listener.ask("cancel \(cancelled)") == "status 0")
        let failed = try await listener.replies(
            "set \(early) 5",
            "get \(early)",
            "post user.uid.\(geteuid())",
            "suspend-process 1",
            "dump /dev/null"
        )
        #expect(failed == ["status 9"])
        // The kernel has few inotify instances, and frees those of ended processes with a delay.
        try await eventually { try await listener.ask("monitor \(early) /etc/hosts 0") == "status 0" }
        let done = try await listener.replies("suspend \(early)", "resume \(early)", "cancel \(early)")
        #expect(done == ["status 0"])
        #expect(try await listener.ask("read \(early)") == "status 2")
        try bus.start()
        for (token, name) in [(handled, "order"), (second, "order"), (late, "menu")] { try await hears(token, name) }
        for token in [checked, lateCheck] {
            try await eventually { try await listener.ask("read \(token)") == "check 1" }
        }
        #expect(listener.calls(early) == 0 && listener.calls(cancelled) == 0)
        let next = try await poster.register("dispatch", "menu")
        try await eventually("the poster hears") {
            _ = try await listener.ask("post menu")
            return poster.calls(next) > 0
        }
    }

    @Test func aBusThatHangsUpCountsAsGoneUntilTheNextOne() async throws {
        try await withTaskExecutorPreference(OwnThread()) { try await judgeHangingUp() }
    }

    private func judgeHangingUp() async throws {
        let token = try await listener.register("dispatch", "menu")
        bus.stop()
        let hanging = try HangingUpBus(inPlaceOf: bus)
        try await eventually("the library reconnects repeatedly") { hanging.connections.count > 2 }
        let began = ContinuousClock.now
        // A post that is sent before the loss is noticed is lost.
        try await eventually("a post is refused") { try await listener.ask("post menu") == "status 9" }
        #expect(try await listener.replies("set \(token) 5", "get \(token)", "dump /dev/null") == ["status 9"])
        let late = try await listener.register("dispatch", "order")
        // The poster connects only now, and has seen the bus's greeting.
        let checked = try await poster.register("check", "order")
        #expect(ContinuousClock.now - began < .seconds(20), "no call waits 25 s for a response")
        hanging.stop()
        try bus.start()
        try await hears(token, "menu")
        try await hears(late, "order")
        try await eventually { try await poster.ask("read \(checked)") == "check 1" }
    }

    // No function waits longer than 30 seconds, and earlier messages count when the bus goes on. All waits of this
    // length are in this test, at the same time.
    @Test(.enabled(if: PrivateBus.Daemon.chosen == .daemon, "the process of dbus-broker is another than its launcher"))
    func aStoppedBusIsWaitedForOnceAndNoLongerThanThirtySeconds() async throws {
        try await withTaskExecutorPreference(OwnThread()) {
            try await withThrowingTaskGroup { group in
                group.addTask { try await judgeStoppedBus() }
                for isKnown in [true, false] {
                    group.addTask { try await judgeRegistrationAfterALoss(isKnown: isKnown) }
                }
                try await group.waitForAll()
            }
        }
    }

    private func judgeStoppedBus() async throws {
        let probes = try (0..<6).map { _ in try Probe(bus.environment) }
        let newcomers = try (0..<2).map { _ in try Probe(bus.environment) }
        var tokens: [Int32] = []
        for probe in probes { tokens.append(try await probe.register("dispatch", "menu")) }
        bus.suspend()
        defer { bus.resume() }
        let commands = [
            "check order", "dispatch order", "set \(tokens[2]) 5", "get \(tokens[3])",
            "post user.uid.\(geteuid()).menu", "dump /dev/null",
        ]
        let began = ContinuousClock.now
        let answers = await withTaskGroup(of: String.self) { group in
            for (probe, command) in zip(probes + newcomers, commands + ["post menu", "check menu"]) {
                group.addTask {
                    let answer = try? await probe.ask(command, within: .seconds(50))
                    return "\(command.split(separator: " ")[0]) \(answer ?? "no response")"
                }
            }
            return await group.reduce(into: []) { $0.append($1) }
        }
        let took = ContinuousClock.now - began
        #expect(took < .seconds(40), "\(took)")
        #expect(answers.allSatisfy { $0.hasSuffix(" status 9") }, "\(answers)")
        // The kernel stores a post until the bus goes on.
        #expect(try await probes[0].ask("post menu") == "status 0")
        #expect(try await probes[1].ask("suspend \(tokens[1])") == "status 0")
        bus.resume()
        try await eventually { probes[0].calls(tokens[0]) == 1 }
        #expect(try await probes[1].ask("resume \(tokens[1])") == "status 0")
        try await eventually { probes[1].calls(tokens[1]) == 1 }
    }

    /// Registers after the bus was lost, while the next bus does not respond. `isKnown` tells whether the process knows
    /// of the loss before.
    private func judgeRegistrationAfterALoss(isKnown: Bool) async throws {
        let bus = try PrivateBus()
        let poster = try Probe(bus.environment)
        #expect(try await poster.ask("post order") == "status 0")
        bus.stop()
        if isKnown { #expect(try await poster.ask("post order") == "status 9") }
        try bus.start()
        bus.suspend()
        defer { bus.resume() }
        let began = ContinuousClock.now
        let token = try await poster.ask("check order", within: .seconds(80))
        let took = ContinuousClock.now - began
        #expect(token.hasPrefix("token ") && took < .seconds(40), "\(token) after \(took)")
        bus.resume()
        let other = try Probe(bus.environment)
        try await eventually("the registration during the outage gets posts") {
            _ = try await other.ask("post order")
            return try await poster.ask("read \(token.dropFirst(6))") == "check 1"
        }
    }
}
