import NotifydProtocol
import Testing

@testable import NotifyDaemon

@Suite struct DaemonStateTests {
    private var state = DaemonState(process: 77, user: 501)
    private let user = Identity(user: 501, process: 10)

    init() {
        let result1 = state.arrived(":1.1", user)
        #expect(result1 == [])
        let result2 = state.arrived(":1.2", Identity(user: 501, process: 11))
        #expect(result2 == [])
    }

    private mutating func set(_ name: String, _ value: UInt64, at time: UInt64, by connection: String = ":1.1") throws {
        try state.setState(connection, name, StateReport(value: value, time: time), now: 1000)
    }

    // Rules, a.11
    @Test mutating func aStateDiesWithTheLastRegistrationInAnyProcess() throws {
        let result3 = try state.enter(":1.1", ["a"])
        #expect(result3 == [])
        let result4 = try state.enter(":1.2", ["a"])
        #expect(result4 == [])
        try set("a", 5, at: 1)
        let result5 = state.leave(":1.1", ["a"])
        #expect(result5 == [])
        #expect(state.state(of: "a") == 5)
        let result6 = state.gone(":1.2")
        #expect(result6 == [])
        #expect(state.state(of: "a") == 0)
        let result7 = try state.enter(":1.1", ["a"])
        #expect(result7 == [])
        #expect(state.state(of: "a") == 0)
    }

    @Test mutating func enteringTwiceIsEnteringOnce() throws {
        let result8 = try state.enter(":1.1", ["a", "a"])
        #expect(result8 == [])
        try set("a", 5, at: 1)
        let result9 = state.leave(":1.1", ["a", "b"])
        #expect(result9 == [])
        #expect(state.state(of: "a") == 0)
    }

    // Rules, a.11 and a.12
    @Test mutating func theNewestStateWinsWhoeverComesLater() throws {
        try set("a", 5, at: 20)
        try set("a", 6, at: 10, by: ":1.2")
        #expect(state.state(of: "a") == 5)
        try set("a", 7, at: 20, by: ":1.2")
        #expect(state.state(of: "a") == 7)
    }

    @Test mutating func aTimeInTheFutureCountsAsNow() throws {
        try set("a", 5, at: .max)
        try state.setState(":1.2", "a", StateReport(value: 6, time: 1001), now: 1001)
        #expect(state.state(of: "a") == 6)
    }

    @Test mutating func namesAreToldApartByTheirBytes() throws {
        try set("caf\u{E9}", 1, at: 1)
        try set("cafe\u{301}", 2, at: 2)
        #expect(state.state(of: "caf\u{E9}") == 1)
    }

    // Rules, a.5
    @Test mutating func permanentNamesStayWithTheirState() throws {
        var configuration = NotifyConfiguration()
        configuration.permanentNames = [.init(name: "p", state: 3)]
        state.configure(configuration)
        #expect(state.state(of: "p") == 3)
        try set("p", 4, at: 1)
        let result10 = state.gone(":1.1")
        #expect(result10 == [])
        #expect(state.state(of: "p") == 4)
        #expect(state.nameListings.contains(NameListing(name: "p", state: 4, isPermanent: true)))
        // If the new configuration lacks it, it is an ordinary name; if the new one has another value, the name keeps its state.
        configuration.permanentNames = [.init(name: "p", state: 9)]
        state.configure(configuration)
        #expect(state.state(of: "p") == 4)
        state.configure(NotifyConfiguration())
        #expect(state.state(of: "p") == 0)
    }

    // Rules, a.4
    @Test mutating func oneNameSaysWhichProcessThisIs() {
        #expect(state.state(of: "com.apple.system.notify.ipc_version") == 77 << 32 | 3)
        let refusal = state.refusal {
            try $0.setState(
                ":1.1",
                "com.apple.system.notify.ipc_version",
                StateReport(value: 1, time: 1),
                now: 1
            )
        }
        #expect(refusal == .notAuthorized)
    }

    // Rules, a.5
    @Test mutating func forbiddenNamesAreNotEnteredAndTheOthersAre() throws {
        let result11 = try state.enter(":1.1", ["a", "user.uid.502", "self.x", "user.uid.501"])
        #expect(result11 == ["user.uid.502", "self.x"])
        #expect(state.processListings.first?.report.names.map(\.name) == ["a", "user.uid.501"])
        var configuration = NotifyConfiguration()
        configuration.rules.reservations = [.init(prefix: "r.", user: 0, group: 0, access: 0x113)]
        state.configure(configuration)
        let result12 = try state.enter(":1.1", ["r.x"])
        #expect(result12 == [])
        let refusal = state.refusal {
            try $0.setState(":1.1", "r.x", StateReport(value: 1, time: 1), now: 1)
        }
        #expect(refusal == .notAuthorized)
    }

    @Test func anotherUserHasLowerLimits() throws {
        var state = DaemonState(process: 1, user: 0)
        _ = state.arrived(":1.1", Identity(user: 0, process: 10))
        _ = state.arrived(":1.2", user)
        let names = (0..<5000).map { "name\($0)" }
        let own = try state.enter(":1.1", names)
        #expect(own.isEmpty)
        let refusal = state.refusal { _ = try $0.enter(":1.2", names) }
        #expect(refusal == .limitsExceeded)
        let few = try state.enter(":1.2", Array(names.prefix(4096)))
        #expect(few.isEmpty)
    }

    @Test func aProcessHasALimitOfNames() throws {
        var limits = Limits()
        (limits.names, limits.nameBytes) = (3, 10)
        var state = DaemonState(process: 1, user: 501, limits: limits)
        _ = state.arrived(":1.1", user)
        let result13 = try state.enter(":1.1", ["a", "b"])
        #expect(result13 == [])
        for names in [["c", "d"], ["012345678"]] {
            let refusal = state.refusal {
                _ = try $0.enter(":1.1", names)
            }
            #expect(refusal == .limitsExceeded)
        }
        let result14 = try state.enter(":1.1", ["b", "c"])
        #expect(result14 == [])
        let result15 = state.leave(":1.1", ["a"])
        #expect(result15 == [])
        let result16 = try state.enter(":1.1", ["12345678"])
        #expect(result16 == [])
    }

    @Test mutating func whoIsUnknownHasNothing() throws {
        let result17 = try state.enter(":1.9", ["a"])
        #expect(result17 == [])
        let result18 = state.leave(":1.9", ["a"])
        #expect(result18 == [])
        let result19 = state.gone(":1.9")
        #expect(result19 == [])
        try set("a", 1, at: 1, by: ":1.9")
        #expect(state.processListings.isEmpty)
        #expect(state.state(of: "a") == 0)
    }
}
