import NotifyCenter
import Testing

@testable import notifyd

@Suite struct ReportedTests {
    private var state = DaemonState.withTwoClients()
    private let user = Identity(user: 501, process: 10)
    private let registration = RegistrationReport(token: 3, kind: .signal, suspensions: 0, deliveries: 9)

    private mutating func report(
        _ names: [NameReport],
        suspensions: UInt32 = 0,
        by connection: String = ":1.1"
    ) throws {
        _ = try state.reported(connection, ProcessReport(suspensions: suspensions, names: names), now: 1000)
    }

    @Test mutating func reportedSuspensionsCountInTheFirstReportUpToALimit() throws {
        try report([NameReport(name: "n")], suspensions: 2)
        #expect(state.firstReport?.suspensions == 2)
        let resumed = try state.resumeProcess(10, by: user)
        #expect(resumed == [.resume(connection: ":1.1")])
        try report([NameReport(name: "n")], suspensions: 2)
        #expect(state.firstReport?.suspensions == 1)
        // Each suspension would be a message to the next connection of the process.
        try report([], suspensions: .max, by: ":1.2")
        let limited = state.arrived(":1.3", Identity(user: 501, process: 11))
        #expect(limited == [.suspend(connection: ":1.3", times: 255)])
        // A process that the bus cannot identify suspends no other.
        _ = state.arrived(":1.4", Identity(user: 501, process: 0))
        try report([], suspensions: 2, by: ":1.4")
        let other = state.arrived(":1.5", Identity(user: 502, process: 0))
        #expect(other == [])
    }

    // Rules, a.12
    @Test mutating func aReportReplacesTheRecordsOfItsSender() throws {
        _ = try state.enter(":1.1", ["old", "both"])
        try state.setState(":1.1", "both", StateReport(value: 5, time: 5), now: 1000)
        let monitor = MonitorReport(token: 2, path: "/a", flags: 0)
        try report([
            NameReport(name: "both", monitors: [monitor], registrations: [registration]),
            NameReport(name: "new", state: StateReport(value: 7, time: 7)),
        ])
        #expect(["both", "new"].map { state.state(of: $0) } == [5, 7])
        let names = state.firstReport?.names ?? []
        #expect(names.map(\.name) == ["both", "new"])
        #expect(names.first?.registrations == [registration] && names.first?.monitors == [monitor])
        #expect(!state.page(0, for: .root).names.contains { $0.name == "old" })
        try report([])
        #expect(state.firstReport == nil && state.amounts.isEmpty)
    }

    @Test mutating func theNewerReportedStateThatMayBeSetWinsInEitherOrder() throws {
        for (first, second) in [(10, 20), (40, 30)] as [(UInt64, UInt64)] {
            try report([NameReport(name: "a", state: StateReport(value: first, time: first))])
            try report([NameReport(name: "a", state: StateReport(value: second, time: second))], by: ":1.2")
            #expect(state.state(of: "a") == max(first, second))
        }
        state.configure(reserved: ["r.": 0x113])
        try report([NameReport(name: "r.x", state: StateReport(value: 7, time: 7))])
        #expect(state.state(of: "r.x") == 0)
        #expect(state.firstReport?.names.map(\.name) == ["r.x"])
    }

    // Rules, a.14
    @Test func aReportOverTheLimitsChangesNothing() throws {
        var limits = Limits()
        limits.connection = Amount(names: 2, bytes: 8, registrations: 1)
        var state = DaemonState(process: 1, user: 501, limits: limits)
        _ = state.arrived(":1.1", user)
        _ = try state.enter(":1.1", ["a"])
        let reports = [
            ["b", "c", "d"].map { NameReport(name: $0) },
            [NameReport(name: "b", registrations: [registration, registration])],
            [NameReport(name: "b", monitors: [MonitorReport(token: 1, path: "/too/long", flags: 0)])],
        ]
        for names in reports {
            let refusal = state.refusal { _ = try $0.reported(":1.1", ProcessReport(names: names), now: 1) }
            #expect(refusal == .limitsExceeded)
        }
        #expect(state.firstReport?.names.map(\.name) == ["a"])
    }
}
