import NotifyCenter
import Testing

@testable import notifyd

@Suite struct ReportedTests {
    private var state = DaemonState(process: 77, user: 501)
    private let user = Identity(user: 501, process: 10)

    init() {
        _ = state.arrived(":1.1", user)
        _ = state.arrived(":1.2", Identity(user: 501, process: 11))
    }

    private mutating func report(
        _ names: [NameReport],
        suspensions: UInt32 = 0,
        by connection: String = ":1.1"
    ) throws {
        _ = try state.reported(connection, ProcessReport(suspensions: suspensions, names: names), now: 1000)
    }

    private var names: [NameReport] {
        (state.page(0, for: .root).processes.first?.report.names ?? []).sorted { $0.name < $1.name }
    }

    /// Each suspension would be a message to the next connection of the process.
    @Test mutating func suspensionsWithoutEndAreNotBelieved() throws {
        _ = try report([], suspensions: .max)
        let actions = state.arrived(":1.3", user)
        #expect(actions == [.suspend(connection: ":1.3", times: 255)])
    }

    @Test mutating func aProcessThatTheBusCannotTellSuspendsNoOther() throws {
        _ = state.arrived(":1.3", Identity(user: 501, process: 0))
        _ = try report([], suspensions: 2, by: ":1.3")
        let actions = state.arrived(":1.4", Identity(user: 502, process: 0))
        #expect(actions == [])
    }

    // Rules, a.12
    @Test mutating func aReportTakesThePlaceOfWhatWasKnown() throws {
        _ = try state.enter(":1.1", ["old", "both"])
        try state.setState(":1.1", "both", StateReport(value: 5, time: 5), now: 1000)
        let registration = RegistrationReport(token: 3, kind: .signal, suspensions: 0, deliveries: 9)
        try report([
            NameReport(name: "both", registrations: [registration]),
            NameReport(name: "new", state: StateReport(value: 7, time: 7)),
        ])
        #expect(["both", "new"].map { state.state(of: $0) } == [5, 7])
        #expect(names.map(\.name) == ["both", "new"])
        #expect(names.first?.registrations == [registration])
        #expect(!state.page(0, for: .root).names.contains { $0.name == "old" })
    }

    @Test mutating func ofTwoReportedStatesTheNewerWinsInEitherOrder() throws {
        for (first, second) in [(10, 20), (40, 30)] as [(UInt64, UInt64)] {
            _ = try report([NameReport(name: "a", state: StateReport(value: first, time: first))])
            _ = try report([NameReport(name: "a", state: StateReport(value: second, time: second))], by: ":1.2")
            #expect(state.state(of: "a") == max(first, second))
        }
    }

    @Test mutating func aReportedStateThatMayNotBeSetIsPassedOver() throws {
        var configuration = NotifyConfiguration()
        configuration.rules.reservations = [.init(prefix: "r.", user: 0, group: 0, access: 0x113)]
        state.configure(configuration)
        _ = try report([NameReport(name: "r.x", state: StateReport(value: 7, time: 7))])
        #expect(state.state(of: "r.x") == 0)
        #expect(names.map(\.name) == ["r.x"])
    }

    @Test mutating func whatAReportTellsIsListed() throws {
        let monitor = MonitorReport(token: 2, path: "/a", flags: 0)
        try report([NameReport(name: "n", monitors: [monitor])])
        #expect(names.first?.monitors == [monitor])
        try report([])
        #expect(names.isEmpty)
        #expect(state.amounts.isEmpty)
    }

    @Test mutating func onlyTheFirstReportTellsOfSuspensions() throws {
        try report([NameReport(name: "n")], suspensions: 2)
        #expect(state.page(0, for: .root).processes.first?.report.suspensions == 2)
        let actions = try state.resumeProcess(10, by: user)
        #expect(actions == [.resume(connection: ":1.1")])
        try report([NameReport(name: "n")], suspensions: 2)
        #expect(state.page(0, for: .root).processes.first?.report.suspensions == 1)
    }

    // Rules, a.14
    @Test func aReportOfTooMuchChangesNothing() throws {
        var limits = Limits()
        limits.connection = Amount(names: 2, bytes: 8, registrations: 1)
        var state = DaemonState(process: 1, user: 501, limits: limits)
        _ = state.arrived(":1.1", user)
        _ = try state.enter(":1.1", ["a"])
        let registration = RegistrationReport(token: 3, kind: .signal, suspensions: 0, deliveries: 9)
        let reports = [
            ["b", "c", "d"].map { NameReport(name: $0) },
            [NameReport(name: "b", registrations: [registration, registration])],
            [NameReport(name: "b", monitors: [MonitorReport(token: 1, path: "/too/long", flags: 0)])],
        ]
        for names in reports {
            let refusal = state.refusal { _ = try $0.reported(":1.1", ProcessReport(names: names), now: 1) }
            #expect(refusal == .limitsExceeded)
        }
        #expect(state.page(0, for: .root).processes.first?.report.names.map(\.name) == ["a"])
    }
}
