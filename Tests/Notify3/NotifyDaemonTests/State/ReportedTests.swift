import NotifydProtocol
import Testing

@testable import NotifyDaemon

@Suite struct ReportedTests {
    private var state = DaemonState(process: 77, user: 501)
    private let user = Identity(user: 501, process: 10)

    init() {
        let result1 = state.arrived(":1.1", user)
        #expect(result1 == [])
        let result2 = state.arrived(":1.2", Identity(user: 501, process: 11))
        #expect(result2 == [])
    }

    private mutating func report(
        _ names: [NameReport],
        suspensions: UInt32 = 0,
        inquiry: UInt64 = 1,
        isFirst: Bool = false,
        by connection: String = ":1.1"
    ) throws -> [DaemonState.Action] {
        try state.reported(
            connection,
            inquiry: inquiry,
            ProcessReport(suspensions: suspensions, names: names),
            isFirst: isFirst,
            now: 1000
        )
        .actions
    }

    /// Each suspension would be a message to the next connection of the process.
    @Test mutating func suspensionsWithoutEndAreNotBelieved() throws {
        _ = try report([], suspensions: .max, isFirst: true)
        let actions = state.arrived(":1.3", user)
        #expect(actions == [.suspend(connection: ":1.3", times: 255)])
    }

    @Test mutating func aProcessThatTheBusCannotTellSuspendsNoOther() throws {
        _ = state.arrived(":1.3", Identity(user: 501, process: 0))
        _ = try report([], suspensions: 2, isFirst: true, by: ":1.3")
        let actions = state.arrived(":1.4", Identity(user: 502, process: 0))
        #expect(actions == [])
    }

    // Rules, a.12
    @Test mutating func aReportTakesThePlaceOfWhatWasKnown() throws {
        let result3 = try state.enter(":1.1", ["old", "both"])
        #expect(result3 == [])
        try state.setState(":1.1", "both", StateReport(value: 5, time: 5), now: 1000)
        let registration = RegistrationReport(token: 3, kind: .signal, suspensions: 0, deliveries: 9)
        let result4 = try report([
            NameReport(name: "both", registrations: [registration]),
            NameReport(name: "new", state: StateReport(value: 7, time: 7)),
        ])
        #expect(result4 == [])
        #expect(state.state(of: "both") == 5)
        #expect(state.state(of: "new") == 7)
        let names = try #require(state.processListings.first).report.names
        #expect(names.map(\.name) == ["both", "new"])
        #expect(names.first?.registrations == [registration])
        #expect(!state.nameListings.contains { $0.name == "old" })
    }

    @Test mutating func ofTwoReportedStatesTheNewerWinsInEitherOrder() throws {
        for (first, second) in [(10, 20), (40, 30)] as [(UInt64, UInt64)] {
            _ = try report([NameReport(name: "a", state: StateReport(value: first, time: first))])
            _ = try report([NameReport(name: "a", state: StateReport(value: second, time: second))], by: ":1.2")
            #expect(state.state(of: "a") == max(first, second))
        }
    }

    // Rules, a.11: a registration that another process had all the time keeps the state, although that process reports only now.
    @Test mutating func aStateWhoseOnlyKnownProcessEndsIsKeptForThoseWhoHaveNotToldYet() throws {
        try state.setState(":1.2", "kept", StateReport(value: 5, time: 5), now: 1000)
        try state.setState(":1.2", "lost", StateReport(value: 6, time: 6), now: 1000)
        _ = state.gone(":1.2")
        #expect(state.state(of: "kept") == 0)
        _ = try report([NameReport(name: "kept")], isFirst: true)
        #expect(state.state(of: "kept") == 5)
        state.gathered()
        _ = try report([NameReport(name: "kept"), NameReport(name: "lost")])
        #expect(state.state(of: "kept") == 5)
        #expect(state.state(of: "lost") == 0)
    }

    // A process that leaves a name and registers it again has ended its state, also while others are still asked.
    @Test mutating func aStateIsNotKeptForTheProcessThatLeft() throws {
        try state.setState(":1.1", "a", StateReport(value: 5, time: 5), now: 1000)
        _ = state.leave(":1.1", ["a"])
        _ = try state.enter(":1.1", ["a"])
        _ = try report([NameReport(name: "a")], isFirst: true)
        #expect(state.state(of: "a") == 0)
    }

    @Test mutating func aReportedStateThatMayNotBeSetIsPassedOver() throws {
        var configuration = NotifyConfiguration()
        configuration.rules.reservations = [.init(prefix: "r.", user: 0, group: 0, access: 0x113)]
        state.configure(configuration)
        _ = try report([NameReport(name: "r.x", state: StateReport(value: 7, time: 7))])
        #expect(state.state(of: "r.x") == 0)
        #expect(state.processListings.first?.report.names.map(\.name) == ["r.x"])
    }

    @Test mutating func pathsThatAreReportedAreWatchedAndOthersNoMore() throws {
        let (kept, other) = (
            MonitorReport(token: 2, path: "/a", flags: 0), MonitorReport(token: 3, path: "/b", flags: 2)
        )
        let result5 = try report([NameReport(name: "n", monitors: [kept, other])])
        #expect(
            result5 == [
                .watch(id: 1, path: "/a", flags: 0, as: user), .watch(id: 2, path: "/b", flags: 2, as: user),
            ]
        )
        let moved = MonitorReport(token: 3, path: "/c", flags: 2)
        let result6 = try report([NameReport(name: "n", monitors: [kept, moved])])
        #expect(
            result6 == [
                .unwatch(id: 2), .watch(id: 3, path: "/c", flags: 2, as: user),
            ]
        )
        #expect(state.processListings.first?.report.names.first?.monitors == [kept, moved])
        let result7 = try report([])
        #expect(result7 == [.unwatch(id: 1), .unwatch(id: 3)])
    }

    @Test mutating func onlyAReportOfTheTimeBeforeTellsOfSuspensions() throws {
        _ = try report([NameReport(name: "n")], suspensions: 2, isFirst: true)
        #expect(state.processListings.first?.report.suspensions == 2)
        let result8 = try state.resumeProcess(10, by: user)
        #expect(result8 == [.resume(connection: ":1.1")])
        _ = try report([NameReport(name: "n")], suspensions: 2)
        #expect(state.processListings.first?.report.suspensions == 1)
    }

    @Test mutating func connectionsWithRegistrationsAreAwaitedUntilTheyAnswer() throws {
        #expect(state.connectionsToAnswer(5) == [])
        _ = try report([NameReport(name: "n")], inquiry: 4)
        #expect(state.connectionsToAnswer(5) == [":1.1"])
        _ = try report([NameReport(name: "n")], inquiry: 5)
        #expect(state.connectionsToAnswer(5) == [])
    }

    @Test func aReportOfTooMuchChangesNothing() throws {
        var limits = Limits()
        (limits.names, limits.monitors, limits.registrations) = (2, 1, 1)
        var state = DaemonState(process: 1, user: 501, limits: limits)
        _ = state.arrived(":1.1", user)
        _ = try state.enter(":1.1", ["a"])
        let registration = RegistrationReport(token: 3, kind: .signal, suspensions: 0, deliveries: 9)
        let reports = [
            ["b", "c", "d"].map { NameReport(name: $0) },
            [NameReport(name: "b", registrations: [registration, registration])],
            [
                NameReport(name: "b", monitors: [MonitorReport(token: 1, path: "/a", flags: 0)]),
                NameReport(name: "c", monitors: [MonitorReport(token: 2, path: "/a", flags: 0)]),
            ],
        ]
        for names in reports {
            let refusal = state.refusal {
                _ = try $0.reported(
                    ":1.1",
                    inquiry: 1,
                    ProcessReport(names: names),
                    isFirst: false,
                    now: 1
                )
            }
            #expect(refusal == .limitsExceeded)
        }
        #expect(state.processListings.first?.report.names.map(\.name) == ["a"])
    }
}
