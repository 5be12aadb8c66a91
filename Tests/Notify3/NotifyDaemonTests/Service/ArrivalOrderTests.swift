import Testing

@testable import NotifyDaemon

@Suite struct ArrivalOrderTests {
    private var order = ArrivalOrder<Int>()

    private mutating func next() -> [String] {
        order.next().map { arrival in
            switch arrival {
            case .call(let call, of: let connection): "\(call) of \(connection)"
            case .departure(of: let connection): "\(connection) left"
            }
        }
    }

    @Test mutating func nothingIsHeldUpWhereAllAreKnown() {
        order.called(1, by: "a")
        order.departed("a")
        let ready = next()
        #expect(ready == ["1 of a", "a left"])
        let more = next()
        #expect(more.isEmpty)
    }

    @Test mutating func aNewcomersCallHoldsUpWhatCameAfterIt() {
        order.called(1, by: "known")
        order.identifying("new")
        order.called(2, by: "new")
        order.called(3, by: "known")
        order.departed("known")
        order.called(4, by: "new")
        let before = next()
        #expect(before == ["1 of known"])
        #expect(order.count(of: "new") == 2)
        order.identified("new")
        let after = next()
        #expect(after == ["2 of new", "3 of known", "known left", "4 of new"])
        #expect(order.count(of: "new") == 0)
        #expect(order.count(of: "known") == 0)
    }

    @Test mutating func eachNewcomerHoldsUpWhatCameAfterIt() {
        order.identifying("first")
        order.called(1, by: "first")
        order.identifying("second")
        order.called(2, by: "second")
        order.identified("second")
        let nothing = next()
        #expect(nothing.isEmpty)
        order.identifying("third")
        order.called(3, by: "third")
        order.identified("first")
        let ready = next()
        #expect(ready == ["1 of first", "2 of second"])
    }

    @Test mutating func oneThatIsGoneUnidentifiedHoldsUpNothingAndCallsNothing() {
        order.identifying("new")
        order.called(1, by: "new")
        order.called(2, by: "known")
        order.departed("new")
        let ready = next()
        #expect(ready == ["2 of known"])
        #expect(!order.isUnidentified("new"))
        #expect(order.count(of: "new") == 0)
    }

    @Test mutating func callsOfOneThatCannotBeIdentifiedAreGivenBack() {
        order.identifying("new")
        order.called(1, by: "new")
        order.called(2, by: "known")
        order.called(3, by: "new")
        let withdrawn = order.withdraw("new")
        #expect(withdrawn == [1, 3])
        let ready = next()
        #expect(ready == ["2 of known"])
    }
}
