import DBusService
import NotifyCenterTestKit
import Testing

/// The messages to notifyd, and their order.
@Suite struct TellingTests {
    let bus: PrivateBus
    let probe: Probe

    init() throws {
        bus = try PrivateBus()
        probe = try Probe(bus.environment)
    }

    // Rules, a.11: when a function returns, its message to notifyd is sent, whatever other threads do.
    @Test func aFunctionReturnsAfterItHasToldNotifyd() async throws {
        let notifyd = try await StandInNotifyd(on: bus.bus)
        let (threads, count) = (8, 200)
        // The first report of the process contains changes that are made during it.
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

    // Rules, a.11: the process sends nothing to notifyd only if notifyd's name has no owner.
    @Test func aNotifydThatRefusesCallsIsStillTold() async throws {
        let failure = MethodFailure(name: "org.freedesktop.DBus.Error.Failed", message: "not now")
        let notifyd = try await StandInNotifyd(on: bus.bus) { if case .enter = $0 { failure } else { nil } }
        _ = try await probe.register("check", "menu")
        // The refusal arrives before the replies to these calls.
        for index in 0..<20 { _ = try await probe.register("check", "order.\(index)") }
        try await eventually { notifyd.words.contains(.enter("order.19")) }
    }
}
