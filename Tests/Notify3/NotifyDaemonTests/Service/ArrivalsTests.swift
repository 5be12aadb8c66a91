import Basics
import DBus
import Testing

@testable import notifyd

@Suite struct ArrivalsTests {
    private var arrivals = Arrivals<String>()
    /// The users of the connections.
    private var known: [String: UInt32] = ["a": 1, "b": 2]
    private var limits = Limits()
    private var now = ContinuousClock.now

    init() { limits.waiting = CallAmount(calls: 3, bytes: 100) }

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

    private mutating func identify(_ connection: String, _ user: UInt32 = 3) {
        known[connection] = user
        arrivals.identified(connection)
    }

    @Test mutating func nothingIsHeldUpWhereAllAreKnown() {
        arrivals.gathered()
        arrivals.called("1", .other, by: "a")
        arrivals.departed("a")
        let (first, second) = (steps(), steps())
        #expect(first == ["1 of a", "a left"])
        #expect(second.isEmpty)
    }

    @Test mutating func aNewcomersCallHoldsUpWhatCameAfterIt() {
        arrivals.gathered()
        arrivals.called("1", .other, by: "a")
        arrivals.called("2", .other, by: "new")
        arrivals.called("3", .other, by: "a")
        arrivals.departed("a")
        arrivals.called("4", .other, by: "newer")
        let before = steps()
        #expect(before == ["who is new", "1 of a"])
        let meanwhile = steps()
        #expect(meanwhile.isEmpty)
        identify("new")
        let after = steps()
        #expect(after == ["who is newer", "2 of new", "3 of a", "a left"])
    }

    @Test mutating func callsOfOneThatTheBusDoesNotKnowAreGivenBack() {
        arrivals.gathered()
        arrivals.called("1", .other, by: "new")
        arrivals.called("2", .other, by: "a")
        arrivals.called("3", .other, by: "new")
        _ = steps()
        arrivals.failedToIdentify("new")
        let after = steps()
        #expect(after == ["1 of nobody", "3 of nobody", "2 of a"])
    }

    @Test mutating func theBusIsNotAskedAboutOneThatIsGone() {
        arrivals.gathered()
        arrivals.called("1", .other, by: "new")
        arrivals.called("2", .other, by: "a")
        arrivals.departed("new")
        arrivals.departed("a")
        let before = steps()
        #expect(before == ["1 of nobody", "new left", "2 of a", "a left"])
        // The table keeps nothing about a connection that is gone, although the bus never reuses unique names.
        arrivals.called("3", .other, by: "new")
        let after = steps()
        #expect(after == ["who is new"])
    }

    // Rules, a.12: otherwise a state would be lost, because its keeper has not reported yet.
    @Test mutating func afterTheStartEverythingWaitsForTheReports() {
        arrivals.called("get", .other, by: "a")
        arrivals.departed("a")
        arrivals.called("report", .report, by: "b")
        let reports = steps()
        #expect(reports == ["report of b"])
        arrivals.awaiting(["a", "b", "c"])
        #expect(arrivals.isGathering)
        arrivals.departed("c")
        #expect(!arrivals.isGathering)
        let after = steps()
        #expect(after == ["c left", "get of a", "a left"])
    }

    @Test mutating func nobodyIsWaitedForWhereNobodyIs() {
        arrivals.called("get", .other, by: "a")
        arrivals.awaiting([])
        let after = steps()
        #expect(after == ["get of a"])
    }

    @Test mutating func aReportTakesThePlaceOfWhatItsSenderSaidBefore() {
        arrivals.called("enter", .registration, by: "a")
        arrivals.called("get", .other, by: "a")
        arrivals.called("leave", .registration, by: "b")
        let before = steps()
        #expect(before.isEmpty)
        arrivals.called("report", .report, by: "a")
        arrivals.called("leave", .registration, by: "a")
        let report = steps()
        #expect(report == ["report of a", "not enter"])
        arrivals.gathered()
        let after = steps()
        #expect(after == ["get of a", "leave of b", "leave of a"])
    }

    // Otherwise a state that passes from one user's process to another's would be lost.
    @Test mutating func fewCallsKeepTheirOrder() {
        arrivals.gathered()
        for number in 1...2 { arrivals.called("\(number)", .other, by: "a") }
        arrivals.called("3", .other, by: "b")
        arrivals.departed("a")
        let few = steps()
        #expect(few == ["1 of a", "2 of a", "3 of b", "a left"])
    }

    // A user that calls without end waits only for its own calls.
    @Test mutating func manyCallsOfOneUserHoldUpNobodyElse() {
        arrivals.gathered()
        limits.waiting.calls = 200
        for _ in 0..<100 { arrivals.called("many", .other, by: "a") }
        for number in 1...2 { arrivals.called("\(number)", .other, by: "b") }
        let steps = steps()
        let turns = steps.indices.filter { steps[$0].hasSuffix(" of b") }
        #expect(turns == [Arrivals<String>.lap, Arrivals<String>.lap + 1])
        #expect(steps.count == 102)
    }

    // In dbus-daemon's queue for notifyd, the calls of one user would come before those of other users.
    @Test mutating func whoCallsFasterThanItsPaceIsAnsweredLater() {
        arrivals.gathered()
        limits.waiting.calls = 200
        limits.pace = CallPace(atOnce: 3, interval: .milliseconds(1))
        for number in 1...6 { arrivals.called("\(number)", .other, by: "a") }
        arrivals.called("7", .other, by: "b")
        let atOnce = steps()
        #expect(atOnce == ["1 of a", "2 of a", "3 of a", "7 of b"])
        #expect(arrivals.timeOfNext(now: now) == now + .milliseconds(1))
        now += .microseconds(999)
        let early = steps()
        #expect(early.isEmpty)
        now += .microseconds(1001)
        let later = steps()
        #expect(later == ["4 of a", "5 of a"])
        // The unused allowance comes back, but does not grow beyond its limit.
        now += .seconds(1)
        for number in 8...10 { arrivals.called("\(number)", .other, by: "a") }
        let rested = steps()
        #expect(rested == ["6 of a", "8 of a", "9 of a"])
        #expect(arrivals.timeOfNext(now: now) == now + .milliseconds(1))
    }

    @Test mutating func theEndOfAConnectionKeepsItsPlaceAndTakesNothingOfThePace() {
        arrivals.gathered()
        limits.pace = CallPace(atOnce: 1, interval: .milliseconds(1))
        arrivals.called("1", .other, by: "a")
        for _ in 0..<3 { arrivals.departed("a") }
        arrivals.called("2", .other, by: "a")
        let atOnce = steps()
        #expect(atOnce == ["1 of a", "a left", "a left", "a left"])
        now += .milliseconds(1)
        let later = steps()
        #expect(later == ["2 of a"])
    }

    // They count for no limit, so a user that connects and disconnects without end would fill the queue.
    @Test mutating func endsOfConnectionsDoNotWaitWithoutBound() {
        arrivals.gathered()
        limits.pace = CallPace(atOnce: 1, interval: .seconds(1))
        limits.waiting.calls = 10
        for _ in 0..<2 { arrivals.called("call", .other, by: "a") }
        for _ in 0..<(2 * Arrivals<String>.longestLine) { arrivals.departed("a") }
        let steps = steps()
        // One call had its turn. Behind the other call the queue is full.
        #expect(steps.count == Arrivals<String>.longestLine + 3)
    }

    private func hasRoom(_ bytes: Int, _ connection: String, _ user: UInt32?) -> Bool {
        arrivals.hasRoom(for: bytes, of: connection, user, limits.waiting)
    }

    @Test mutating func whatWaitsCountsForItsUserUntilItsTurn() {
        for number in 1...2 { arrivals.called("\(number)", .other, bytes: 40, by: "a", user: 1) }
        #expect(hasRoom(20, "c", 1))
        #expect(!hasRoom(21, "c", 1))
        #expect(hasRoom(100, "b", 2))
        arrivals.called("3", .other, bytes: 10, by: "a", user: 1)
        #expect(!hasRoom(1, "a", 1))
        arrivals.gathered()
        _ = steps()
        #expect(hasRoom(100, "a", 1))
    }

    @Test mutating func whatANewcomerSentCountsForItsUserWhenTheBusHasAnswered() {
        arrivals.called("1", .other, bytes: 60, by: "a", user: 1)
        arrivals.called("2", .other, bytes: 40, by: "new")
        arrivals.called("3", .other, bytes: 40, by: "new")
        #expect(!hasRoom(21, "new", nil))
        #expect(hasRoom(40, "a", 1))
        let asked = steps()
        #expect(asked == ["who is new"])
        identify("new", 1)
        let refused = steps()
        #expect(refused == ["no 3"])
        #expect(!hasRoom(1, "new", 1))
        arrivals.gathered()
        let after = steps()
        #expect(after == ["1 of a", "2 of new"])
        #expect(hasRoom(100, "new", 1))
    }

    @Test mutating func newConnectionsTogetherLeaveRoomForKnownUsersAndForTheFirstCallOfANewProcess() {
        func hasRoom(_ bytes: Int, _ connection: String, _ user: UInt32? = nil) -> Bool {
            arrivals.hasRoom(for: bytes, of: connection, user, .ofStranger)
        }
        let large = 2 << 20
        var taken = 0
        while taken < 100, hasRoom(large, "hostile \(taken)") {
            arrivals.called("\(taken)", .other, bytes: large, by: "hostile \(taken)")
            taken += 1
        }
        #expect(taken == 8)
        #expect(!hasRoom(ServiceFrontDesk<String>.smallFirstCall + 1, "new"))
        #expect(hasRoom(ServiceFrontDesk<String>.smallFirstCall, "new"))
        arrivals.called("first", .other, bytes: 100, by: "new")
        #expect(!hasRoom(100, "new"), "one call")
        #expect(hasRoom(large, "known", 7))
        // A call that is refused as unknown frees its room.
        for number in 0..<taken { arrivals.departed("hostile \(number)") }
        _ = steps()
        #expect(hasRoom(large, "later"))
    }

    @Test mutating func oneWhoseReportWasTooLargeIsAskedForItWhenItIsKnown() {
        arrivals.reportedTooMuch("new")
        arrivals.called("1", .other, by: "new")
        let before = steps()
        #expect(before == ["who is new"])
        identify("new")
        let after = steps()
        #expect(after == ["report, new"])
    }

    @Test mutating func theEndOfTheStartDoesNotLoseTheNewcomerThatIsAskedAbout() {
        arrivals.called("get", .other, by: "a")
        arrivals.called("1", .other, by: "new")
        let asked = steps()
        #expect(asked == ["who is new"])
        arrivals.gathered()
        let meanwhile = steps()
        #expect(meanwhile.isEmpty)
        arrivals.failedToIdentify("new")
        let after = steps()
        #expect(after == ["1 of nobody", "get of a"] || after == ["get of a", "1 of nobody"])
    }
}
