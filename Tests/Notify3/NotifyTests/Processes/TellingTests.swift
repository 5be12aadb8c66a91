import NotifyCenterTestKit
import Testing

/// What notifyd is told, and when.
@Suite struct TellingTests {
    let bus: PrivateBus
    let probe: Probe

    init() throws {
        bus = try PrivateBus()
        probe = try Probe(bus.environment)
    }

    // Rules, a.11: whatever another thread is about, a function that returned has told what it had to tell.
    @Test func whatAFunctionTellsIsOnItsWayWhenItReturns() async throws {
        let notifyd = try await StandInNotifyd(on: bus.bus)
        let (threads, count) = (8, 200)
        // What changes while the process reports for the first time is in its report.
        _ = try await probe.register("check", "first")
        try await eventually { notifyd.words.contains(.report) }
        #expect(try await probe.ask("storm \(threads) \(count)") == "done")
        try await eventually {
            notifyd.words.count { if case .post = $0 { true } else { false } } == 2 * threads * count
        }
        var told: Set<StandInNotifyd.Word> = []
        var late: [StandInNotifyd.Word] = []
        for word in notifyd.words {
            guard case .post(let post) = word else {
                told.insert(word)
                continue
            }
            let (event, name) = (post.prefix { $0 != "." }, String(post.drop { $0 != "." }.dropFirst()))
            if !told.contains(event == "left" ? .leave(name) : .enter(name)) { late.append(word) }
        }
        #expect(late.isEmpty)
    }

    // Rules, a.11: only where nobody answers to notifyd's name is there nothing to tell.
    @Test func aNotifydThatRefusesAnAnswerIsToldAllTheSame() async throws {
        let notifyd = try await StandInNotifyd(on: bus.bus, isRefusing: true)
        _ = try await probe.register("check", "menu")
        // The refusal is there before the answer to what is asked now.
        for index in 0..<20 { _ = try await probe.register("check", "order.\(index)") }
        try await eventually { notifyd.words.contains(.enter("order.19")) }
    }
}
