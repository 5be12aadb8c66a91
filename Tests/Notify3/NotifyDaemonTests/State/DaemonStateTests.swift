import NotifyCenter
import Testing

@testable import notifyd

@Suite struct DaemonStateTests {
    private var state = DaemonState.withTwoClients()
    private let user = Identity(user: 501, process: 10)

    private mutating func set(_ name: String, _ value: UInt64, at time: UInt64, by connection: String = ":1.1") throws {
        try state.setState(connection, name, StateReport(value: value, time: time), now: 1000)
    }

    private func keep(_ connection: String, _ name: String, _ value: UInt64, at time: UInt64) -> DaemonState.Action {
        .keep(connection: connection, [NameReport(name: name, state: StateReport(value: value, time: time))])
    }

    // Rules, a.11: entering a name twice is entering it once.
    @Test mutating func aStateDiesWithTheLastRegistrationInAnyProcess() throws {
        let forbidden = [try state.enter(":1.1", ["a", "a"]), try state.enter(":1.2", ["a"])]
        #expect(forbidden == [[], []])
        try set("a", 5, at: 1)
        state.leave(":1.1", ["a", "b"])
        #expect(state.state(of: "a") == 5)
        state.gone(":1.2")
        #expect(state.state(of: "a") == 0)
        _ = try state.enter(":1.1", ["a"])
        #expect(state.state(of: "a") == 0)
    }

    // Rules, a.11 and a.12
    @Test mutating func theNewestStateWinsInAnyOrderOfCalls() throws {
        try set("a", 5, at: 20)
        try set("a", 6, at: 10, by: ":1.2")
        #expect(state.state(of: "a") == 5)
        try set("a", 7, at: 20, by: ":1.2")
        #expect(state.state(of: "a") == 7)
        // A time in the future counts as now.
        try set("b", 5, at: .max)
        try state.setState(":1.2", "b", StateReport(value: 6, time: 1001), now: 1001)
        #expect(state.state(of: "b") == 6)
        // An older state is not handed on.
        state.gone(":1.1")
        let handovers = state.takeHandovers()
        #expect(handovers == [])
    }

    // Rules, a.12: the next notifyd gets the state from the keeper.
    @Test mutating func aStateIsHandedToARegistrantWhenItsKeeperLeaves() throws {
        _ = try state.enter(":1.2", ["a", "b", "c"])
        try set("a", 5, at: 1, by: ":1.2")
        try set("a", 6, at: 2)
        try set("b", 7, at: 3)
        state.leave(":1.1", ["a"])
        let left = state.takeHandovers()
        state.gone(":1.1")
        let ended = state.takeHandovers()
        // The last registrant takes the state with it.
        state.gone(":1.2")
        let none = state.takeHandovers()
        #expect([left, ended, none] == [[keep(":1.2", "a", 6, at: 2)], [keep(":1.2", "b", 7, at: 3)], []])
        #expect(state.names.entries.keys.map(\.rawValue) == ["com.apple.system.notify.ipc_version"])
    }

    @Test mutating func aStateIsHandedOnlyToARegistrantThatMaySetIt() throws {
        state.configure(reserved: ["r.": 0x113])
        _ = state.arrived(":1.3", .root)
        _ = state.arrived(":1.4", .root)
        _ = try state.enter(":1.1", ["r.x"])
        try set("r.x", 5, at: 1, by: ":1.3")
        state.gone(":1.3")
        let none = state.takeHandovers()
        #expect(state.state(of: "r.x") == 5)
        // A registrant that comes later keeps it.
        _ = try state.enter(":1.4", ["r.x"])
        let handovers = state.takeHandovers()
        #expect([none, handovers] == [[], [keep(":1.4", "r.x", 5, at: 1)]])
    }

    @Test mutating func namesAreComparedByBytes() throws {
        try set("caf\u{E9}", 1, at: 1)
        try set("cafe\u{301}", 2, at: 2)
        #expect(state.state(of: "caf\u{E9}") == 1)
    }

    // Rules, a.5
    @Test mutating func permanentNamesStayWithTheirState() throws {
        state.configure(permanent: ["p": 3])
        #expect(state.state(of: "p") == 3)
        try set("p", 4, at: 1)
        state.gone(":1.1")
        #expect(state.state(of: "p") == 4)
        #expect(state.page(0, for: .root).names.contains(NameListing(name: "p", state: 4, isPermanent: true)))
        // With a new initial value, the name keeps its state. Without a line for it, it becomes an ordinary name.
        state.configure(permanent: ["p": 9])
        #expect(state.state(of: "p") == 4)
        state.configure()
        #expect(state.state(of: "p") == 0)
    }

    // Rules, a.4
    @Test mutating func oneNameSaysWhichProcessThisIs() {
        let name = "com.apple.system.notify.ipc_version"
        #expect(state.state(of: name) == 77 << 32 | 3)
        let refusal = state.refusal { try $0.setState(":1.1", name, StateReport(value: 1, time: 1), now: 1) }
        #expect(refusal == .notAuthorized)
    }

    // Rules, a.5
    @Test mutating func forbiddenNamesAreNotEnteredAndTheOthersAre() throws {
        let refused = try state.enter(":1.1", ["a", "user.uid.502", "self.x", "user.uid.501"])
        #expect(refused == ["user.uid.502", "self.x"])
        #expect(state.firstReport?.names.map(\.name) == ["a", "user.uid.501"])
        state.configure(reserved: ["r.": 0x113])
        let allowed = try state.enter(":1.1", ["r.x"])
        #expect(allowed == [])
        let refusal = state.refusal { try $0.setState(":1.1", "r.x", StateReport(value: 1, time: 1), now: 1) }
        #expect(refusal == .notAuthorized)
    }

    // Rules, a.5
    @Test mutating func aUserThatMayNotRegisterANameDoesNotGetItsState() throws {
        state.configure(reserved: ["secret.": 0x003, "open.": 0x113], permanent: ["secret.x": 3, "open.x": 4])
        for name in ["secret.x", "user.uid.502"] {
            let refusal = state.refusal { _ = try $0.state(of: name, for: user) }
            #expect(refusal == .notAuthorized)
        }
        let open = try state.state(of: "open.x", for: user)
        #expect(open == 4 && state.state(of: "secret.x") == 3)
        let listed = state.page(0, for: user).names.map(\.name)
        #expect(listed.contains("open.x") && !listed.contains("secret.x"))
    }

    // Rules, a.14: one user cannot use up the room of other users.
    @Test func anotherUserHasLowerLimits() throws {
        var state = DaemonState(process: 1, user: 0)
        _ = state.arrived(":1.0", .root)
        let names = (0..<100_001).map { "n\($0)" }
        func refusal(_ connection: String, _ count: Int) -> NotifydProtocol.ErrorName? {
            state.refusal { _ = try $0.enter(connection, Array(names.prefix(count))) }
        }
        #expect([refusal(":1.0", 100_000), refusal(":1.0", 100_001)] == [nil, .limitsExceeded])
        // All connections of a user have a limit together.
        for connection in [":1.1", ":1.2", ":1.3", ":1.4"] {
            _ = state.arrived(connection, user)
            #expect([refusal(connection, 4096), refusal(connection, 4097)] == [nil, .limitsExceeded])
            _ = try state.enter(connection, Array(names.prefix(4096)))
        }
        _ = state.arrived(":1.5", user)
        #expect(refusal(":1.5", 1) == .limitsExceeded)
    }

    // Rules, a.14
    @Test func aProcessAndItsUserHaveALimitOfNamesAndOfListsThatWait() throws {
        var limits = Limits()
        limits.lists = 2
        limits.connection = Amount(names: 3, bytes: 10, registrations: 5)
        limits.user = Amount(names: 4, bytes: 12, registrations: 5)
        var state = DaemonState(process: 1, user: 501, limits: limits)
        for connection in [":1.1", ":1.2"] { _ = state.arrived(connection, user) }
        func refusal(_ connection: String, _ names: [String]) -> NotifydProtocol.ErrorName? {
            state.refusal { _ = try $0.enter(connection, names) }
        }
        try state.beginList(":1.1")
        try state.beginList(":1.2")
        #expect(state.refusal { try $0.beginList(":1.1") } == .limitsExceeded)
        state.endList(":1.2")
        #expect(state.refusal { try $0.beginList(":1.1") } == nil)
        _ = try state.enter(":1.1", ["a", "b"])
        for names in [["c", "d"], ["012345678"]] { #expect(refusal(":1.1", names) == .limitsExceeded) }
        _ = try state.enter(":1.1", ["b", "c"])
        #expect(refusal(":1.2", ["a", "b"]) == .limitsExceeded)
        _ = try state.enter(":1.2", ["a"])
        state.leave(":1.1", ["a", "b"])
        #expect(refusal(":1.2", ["12345678"]) == nil)
        // Another user has a separate limit.
        _ = state.arrived(":1.3", Identity(user: 502, process: 12))
        #expect(refusal(":1.3", ["x", "y", "z"]) == nil)
        state.gone(":1.1")
        try state.beginList(":1.2")
        try state.beginList(":1.2")
        state.gone(":1.2")
        #expect(state.amounts.isEmpty)
    }

    @Test mutating func callsOfAnUnknownConnectionChangeNothing() throws {
        _ = try state.enter(":1.9", ["a"])
        state.leave(":1.9", ["a"])
        state.gone(":1.9")
        try set("a", 1, at: 1, by: ":1.9")
        #expect(state.page(0, for: .root).processes.isEmpty)
        #expect(state.state(of: "a") == 0)
    }

    // Rules, a.5
    @Test func onlyReservedNamesArePostedForUsersThatMayPostThem() {
        func refusal(_ name: String, _ user: UInt32) -> NotifydProtocol.ErrorName? {
            state.refusal { try $0.checkPost(name, by: Identity(user: user)) }
        }
        let own = "user.uid.502.x"
        #expect([refusal(own, 502), refusal(own, 0), refusal(own, 503)] == [nil, nil, .notAuthorized])
        for name in ["open", "self.x"] { #expect(refusal(name, 0) == .notAuthorized) }
    }

    // Rules, a.14
    @Test mutating func aListIsOfOneUserOrForRootOfAllAndComesInPages() throws {
        _ = state.arrived(":1.3", Identity(user: 502, process: 12))
        _ = try state.enter(":1.1", ["a", "shared"])
        _ = try state.enter(":1.3", ["b", "shared"])
        let (own, all) = (state.page(0, for: user), state.page(0, for: .root))
        #expect(own.processes.map(\.connection) == [":1.1"])
        #expect(Set(own.names.map(\.name)) == ["a", "shared", "com.apple.system.notify.ipc_version"])
        #expect(all.processes.map(\.connection) == [":1.1", ":1.3"])
        #expect(all.names.count == 4)
        state = .withTwoClients()
        let names = (0..<5000).map { "a name of some length, \($0)" }
        _ = try state.enter(":1.1", names)
        _ = try state.enter(":1.2", ["last"])
        var (cursor, pages, listed) = (UInt64(0), 0, [String]())
        repeat {
            let page = state.page(cursor, for: .root)
            listed += page.processes.flatMap { $0.report.names.map(\.name) }
            // A report that changes nothing changes no page.
            _ = try state.reported(":1.1", ProcessReport(names: names.map { NameReport(name: $0) }), now: 1)
            (cursor, pages) = (page.cursor, pages + 1)
        } while cursor != 0
        #expect(pages > 2)
        #expect(listed.count == 5001)
        #expect(Set(listed) == Set(names + ["last"]))
        let (beyond, past) = (state.page(.max, for: .root), state.page(1 << 32 | 0xFFFF_FFFF, for: Identity(user: 501)))
        #expect(beyond == ListPage())
        #expect(past.processes.map(\.connection) == [":1.2"])
    }
}
