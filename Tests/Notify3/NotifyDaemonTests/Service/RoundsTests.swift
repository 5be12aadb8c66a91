import Testing

@testable import notifyd

@Suite struct RoundsTests {
    private var rounds = Rounds<Int>()

    private mutating func begin(_ awaited: Set<String>) -> [UInt64] { rounds.begin { _ in awaited }.map(\.number) }

    @Test mutating func aRoundIsOverWhenAllHaveReportedOrAreGone() {
        rounds.want(1, .user(501))
        let begun = begin([":1.1", ":1.2"])
        #expect(begun == [1])
        rounds.reported(":1.1", in: 0)
        #expect(rounds.awaits(":1.1", in: 1))
        #expect(!rounds.awaits(":1.1", in: 0))
        #expect(!rounds.awaits(":1.3", in: 1))
        rounds.reported(":1.1", in: 1)
        #expect(!rounds.awaits(":1.1", in: 1))
        let early = rounds.finish()
        #expect(early.isEmpty)
        rounds.gone(":1.2")
        let over = rounds.finish()
        #expect(over == [1])
        let none = rounds.finish()
        #expect(none.isEmpty)
    }

    @Test mutating func timeEndsItsOwnRoundOnly() {
        rounds.want(1, .user(501))
        rounds.want(2, .user(502))
        let begun = begin([":1.1"])
        #expect(begun == [1, 2])
        rounds.expire(2)
        let over = rounds.finish()
        #expect(over == [2])
    }

    @Test mutating func whoComesDuringARoundSharesTheNext() {
        rounds.want(1, .all)
        _ = begin([":1.1"])
        rounds.want(2, .all)
        rounds.want(3, .all)
        let none = begin([])
        #expect(none.isEmpty)
        rounds.reported(":1.1", in: 1)
        let over = rounds.finish()
        #expect(over == [1])
        let begun = begin([])
        #expect(begun == [2])
        let next = rounds.finish()
        #expect(next == [2, 3])
    }
}
