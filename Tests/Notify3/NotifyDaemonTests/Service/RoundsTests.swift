import Testing

@testable import notifyd

@Suite struct RoundsTests {
    private var rounds = Rounds<Int>()

    private mutating func begin(_ awaited: Set<String>) -> [UInt64] { rounds.begin { _ in awaited }.map(\.number) }

    @Test mutating func aRoundIsOverWhenAllHaveReportedOrAreGoneOrAtItsTimeLimit() {
        rounds.want(1, .user(501))
        rounds.want(2, .user(502))
        let begun = begin([":1.1", ":1.2"])
        #expect(begun == [1, 2])
        rounds.reported(":1.1", in: 0)
        #expect(rounds.awaits(":1.1", in: 1) && !rounds.awaits(":1.1", in: 0) && !rounds.awaits(":1.3", in: 1))
        rounds.reported(":1.1", in: 1)
        #expect(!rounds.awaits(":1.1", in: 1))
        let early = rounds.finish()
        rounds.expire(2)
        let expired = rounds.finish()
        rounds.gone(":1.2")
        let (over, none) = (rounds.finish(), rounds.finish())
        #expect([early, expired, over, none] == [[], [2], [1], []])
    }

    @Test mutating func requestsDuringARoundShareTheNextRound() {
        rounds.want(1, .all)
        _ = begin([":1.1"])
        rounds.want(2, .all)
        rounds.want(3, .all)
        let none = begin([])
        rounds.reported(":1.1", in: 1)
        let (over, begun, next) = (rounds.finish(), begin([]), rounds.finish())
        #expect([none, begun] == [[], [2]])
        #expect([over, next] == [[1], [2, 3]])
    }
}
