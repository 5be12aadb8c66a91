import Basics
import DBusService
import Testing

@testable import notifyd

@Suite struct ArrivalsTests {
    private var arrivals = Arrivals<String>()
    /// The users of the connections.
    private var known: [String: UInt32] = ["a": 1, "b": 2]
    private var limits = Limits()
    private var now = ContinuousClock.now

    init() { limits.waiting = CallAmount(calls: 3, bytes: 100) }

    /// Takes these events: “CALL of CONNECTION” and “CONNECTION left”.
    private mutating func take(_ events: String..., as kind: Arrivals<String>.Kind = .other) {
        for event in events {
            let words = event.split(separator: " ").map(String.init)
            if words.count == 2 {
                arrivals.departed(words[0])
            } else {
                arrivals.called(words[0], kind, by: words[2])
            }
        }
    }

    /// Returns the steps up to the first connection that the bus has to identify.
    private mutating func steps() -> [String] {
        var steps: [String] = []
        while let step = arrivals.next(now: now, user: { known[$0] }, limits: { _ in limits }) {
            switch step {
            case .identify(let connection): steps.append("who is \(connection)")
            case .call(let call, of: let connection): steps.append("\(call) of \(connection)")
            case .refuse(let call): steps.append("no \(call)")
            case .refuseUnknown(let call): steps.append("\(call) of nobody")
            case .superseded(let call): steps.append("not \(call)")
            case .askToReport(let connection): steps.append("report, \(connection)")
            case .departure(of: let connection): steps.append("\(connection) left")
            }
        }
        return steps
    }

    private mutating func expectSteps(_ expected: String..., sourceLocation: SourceLocation = #_sourceLocation) {
        let steps = steps()
        #expect(steps == expected, sourceLocation: sourceLocation)
    }

    private mutating func identify(_ connection: String, _ user: UInt32 = 3) {
        known[connection] = user
        arrivals.identified(connection)
    }

    @Test mutating func callsKeepTheirOrderAndWaitForANewcomersCall() {
        arrivals.gathered()
        // A state that passes from one user's process to another's would be lost in another order.
        take("1 of a", "2 of a", "3 of b", "a left")
        expectSteps("1 of a", "2 of a", "3 of b", "a left")
        take("1 of a", "2 of new", "3 of a", "a left", "4 of newer")
        expectSteps("who is new", "1 of a")
        expectSteps()
        identify("new")
        expectSteps("who is newer", "2 of new", "3 of a", "a left")
    }

    @Test mutating func callsOfAConnectionThatIsUnknownOrGoneAreGivenBack() {
        arrivals.gathered()
        take("1 of new", "2 of a", "3 of new")
        _ = steps()
        arrivals.failedToIdentify("new")
        expectSteps("1 of nobody", "3 of nobody", "2 of a")
        // The bus is not asked about a connection that is gone.
        take("1 of other", "2 of a", "other left", "a left")
        expectSteps("1 of nobody", "other left", "2 of a", "a left")
        // The table keeps nothing about a connection that is gone, although the bus never reuses unique names.
        take("3 of other")
        expectSteps("who is other")
    }

    // Rules, a.12: otherwise a state would be lost, because its keeper has not reported yet.
    @Test mutating func afterTheStartEverythingWaitsForTheReports() {
        take("get of a", "a left")
        take("report of b", as: .report)
        expectSteps("report of b")
        arrivals.awaiting(["a", "b", "c"])
        #expect(arrivals.isGathering)
        take("c left")
        #expect(!arrivals.isGathering)
        expectSteps("c left", "get of a", "a left")
        // Nothing waits if no process has to report.
        arrivals = Arrivals()
        take("get of a")
        arrivals.awaiting([])
        expectSteps("get of a")
    }

    @Test mutating func aReportReplacesEarlierRegistrationsOfItsSender() {
        take("enter of a", as: .registration)
        take("get of a")
        take("leave of b", as: .registration)
        expectSteps()
        take("report of a", as: .report)
        take("leave of a", as: .registration)
        expectSteps("report of a", "not enter")
        arrivals.gathered()
        expectSteps("get of a", "leave of b", "leave of a")
    }

    // A user that calls without end waits only for its own calls.
    @Test mutating func manyCallsOfOneUserDelayNoOtherUser() {
        arrivals.gathered()
        limits.waiting.calls = 200
        for _ in 0..<100 { take("many of a") }
        take("1 of b", "2 of b")
        let steps = steps()
        let turns = steps.indices.filter { steps[$0].hasSuffix(" of b") }
        #expect(turns == [Arrivals<String>.lap, Arrivals<String>.lap + 1])
        #expect(steps.count == 102)
    }

    // In dbus-daemon's queue for notifyd, the calls of one user would come before those of other users.
    @Test mutating func callsBeyondAUsersPaceWait() {
        arrivals.gathered()
        limits.waiting.calls = 200
        limits.pace = CallPace(atOnce: 3, interval: .milliseconds(1))
        take("1 of a", "2 of a", "3 of a", "4 of a", "5 of a", "6 of a", "7 of b")
        expectSteps("1 of a", "2 of a", "3 of a", "7 of b")
        #expect(arrivals.timeOfNext(now: now) == now + .milliseconds(1))
        now += .microseconds(999)
        expectSteps()
        now += .microseconds(1001)
        expectSteps("4 of a", "5 of a")
        // The unused allowance comes back, but does not grow beyond its limit.
        now += .seconds(1)
        take("8 of a", "9 of a", "10 of a")
        expectSteps("6 of a", "8 of a", "9 of a")
        #expect(arrivals.timeOfNext(now: now) == now + .milliseconds(1))
    }

    @Test mutating func endsOfConnectionsKeepTheirPlaceCountForNoPaceAndAreBounded() {
        arrivals.gathered()
        limits.pace = CallPace(atOnce: 1, interval: .milliseconds(1))
        take("1 of a", "a left", "a left", "a left", "2 of a")
        expectSteps("1 of a", "a left", "a left", "a left")
        now += .milliseconds(1)
        expectSteps("2 of a")
        // Ends count for no limit, so a user that connects and disconnects without end would fill the queue.
        arrivals = Arrivals()
        arrivals.gathered()
        limits.pace = CallPace(atOnce: 1, interval: .seconds(1))
        limits.waiting.calls = 10
        take("call of a", "call of a")
        for _ in 0..<(2 * Arrivals<String>.longestLine) { arrivals.departed("a") }
        let steps = steps()
        // One call had its turn. Behind the other call the queue is full.
        #expect(steps.count == Arrivals<String>.longestLine + 3)
    }

    private func hasRoom(_ bytes: Int, _ connection: String, _ user: UInt32?) -> Bool {
        arrivals.hasRoom(for: bytes, of: connection, user, limits.waiting)
    }

    @Test mutating func waitingCallsCountForTheirUserOnceIdentifiedUntilTheirTurn() {
        for number in 1...2 { arrivals.called("\(number)", .other, bytes: 40, by: "a", user: 1) }
        #expect([hasRoom(20, "c", 1), hasRoom(21, "c", 1), hasRoom(100, "b", 2)] == [true, false, true])
        arrivals.called("3", .other, bytes: 10, by: "a", user: 1)
        #expect(!hasRoom(1, "a", 1))
        arrivals.gathered()
        _ = steps()
        #expect(hasRoom(100, "a", 1))
        arrivals = Arrivals()
        arrivals.called("1", .other, bytes: 60, by: "a", user: 1)
        for number in 2...3 { arrivals.called("\(number)", .other, bytes: 40, by: "new") }
        #expect([hasRoom(21, "new", nil), hasRoom(40, "a", 1)] == [false, true])
        expectSteps("who is new")
        identify("new", 1)
        expectSteps("no 3")
        #expect(!hasRoom(1, "new", 1))
        arrivals.gathered()
        expectSteps("1 of a", "2 of new")
        #expect(hasRoom(100, "new", 1))
    }

    @Test mutating func newConnectionsTogetherLeaveRoomForKnownUsersAndForTheFirstCallOfANewProcess() {
        func hasRoom(_ bytes: Int, _ connection: String, _ user: UInt32? = nil) -> Bool {
            arrivals.hasRoom(for: bytes, of: connection, user, .ofStranger)
        }
        let (large, small) = (2 << 20, ServiceFrontDesk<String>.smallFirstCall)
        var taken = 0
        while taken < 100, hasRoom(large, "hostile \(taken)") {
            arrivals.called("\(taken)", .other, bytes: large, by: "hostile \(taken)")
            taken += 1
        }
        #expect(taken == 8)
        #expect([hasRoom(small + 1, "new"), hasRoom(small, "new")] == [false, true])
        arrivals.called("first", .other, bytes: 100, by: "new")
        #expect(!hasRoom(100, "new"), "one call")
        #expect(hasRoom(large, "known", 7))
        // A call that is refused as unknown frees its room.
        for number in 0..<taken { arrivals.departed("hostile \(number)") }
        _ = steps()
        #expect(hasRoom(large, "later"))
    }

    @Test mutating func aNewcomerIsServedOrAskedForItsReportOnceIdentified() {
        arrivals.reportedTooMuch("large")
        take("1 of large")
        expectSteps("who is large")
        identify("large")
        expectSteps("report, large")
        // The end of the start does not lose a newcomer that the bus is identifying.
        arrivals = Arrivals()
        take("get of a", "1 of new")
        expectSteps("who is new")
        arrivals.gathered()
        expectSteps()
        arrivals.failedToIdentify("new")
        let after = steps()
        #expect(after == ["1 of nobody", "get of a"] || after == ["get of a", "1 of nobody"])
    }
}
