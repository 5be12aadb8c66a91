import Testing

@testable import NotifyDaemon

@Suite struct ArrivalsTests {
    private var arrivals = Arrivals<String>()
    /// By connection: their users.
    private var known: [String: UInt32] = ["a": 1, "b": 2]
    private var limit = 3

    /// What is to be done, up to the first newcomer.
    private mutating func steps() -> [String] {
        var steps: [String] = []
        while let step = arrivals.next(user: { known[$0] }, limit: { _ in limit }) {
            switch step {
            case .identify(let connection): steps.append("who is \(connection)")
            case .call(let call, of: let connection): steps.append("\(call) of \(connection)")
            case .refuse(let call): steps.append("no \(call)")
            case .refuseUnknown(let call): steps.append("\(call) of nobody")
            case .superseded(let call): steps.append("not \(call)")
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
        #expect(before == ["1 of a", "who is new"])
        let meanwhile = steps()
        #expect(meanwhile.isEmpty)
        identify("new")
        let after = steps()
        #expect(after == ["2 of new", "3 of a", "a left", "who is newer"])
    }

    @Test mutating func callsOfOneThatTheBusDoesNotKnowAreGivenBack() {
        arrivals.gathered()
        arrivals.called("1", .other, by: "new")
        arrivals.called("2", .other, by: "a")
        arrivals.called("3", .other, by: "new")
        _ = steps()
        arrivals.failedToIdentify("new")
        let after = steps()
        #expect(after == ["1 of nobody", "2 of a", "3 of nobody"])
    }

    @Test mutating func theBusIsNotAskedAboutOneThatIsGone() {
        arrivals.gathered()
        arrivals.called("1", .other, by: "new")
        arrivals.called("2", .other, by: "a")
        arrivals.departed("new")
        arrivals.departed("a")
        let before = steps()
        #expect(before == ["1 of nobody", "2 of a", "new left", "a left"])
        // Unique names are not given again, but nothing is kept of those that are gone.
        arrivals.called("3", .other, by: "new")
        let after = steps()
        #expect(after == ["who is new"])
    }

    // Rules, a.12: otherwise a state would end, because the process that keeps it alive has not reported yet.
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
        #expect(after == ["get of a", "a left", "c left"])
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

    @Test mutating func callsOfOneUserThatWaitAreLimited() {
        for number in 1...4 { arrivals.called("\(number)", .other, by: "a") }
        arrivals.called("5", .other, by: "b")
        let refused = steps()
        #expect(refused == ["no 4"])
        arrivals.gathered()
        let after = steps()
        #expect(after == ["1 of a", "2 of a", "3 of a", "5 of b"])
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
