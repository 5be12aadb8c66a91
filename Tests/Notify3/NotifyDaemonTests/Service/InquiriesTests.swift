import Testing

@testable import NotifyDaemon

@Suite struct InquiriesTests {
    private var inquiries = Inquiries<Int>(first: 100)

    private mutating func begin(_ waiter: Int, awaiting: Set<String>) -> UInt64 {
        let begins = inquiries.want(waiter)
        #expect(begins)
        let number = inquiries.takeNumber()
        inquiries.began(number, awaiting: awaiting)
        return number
    }

    @Test mutating func aRoundIsOverWhenAllHaveAnsweredOrAreGone() {
        let number = begin(1, awaiting: [":1.1", ":1.2"])
        #expect(number == 101)
        let result1 = inquiries.finish()
        #expect(result1 == nil)
        inquiries.settle(":1.1", inquiry: number - 1)
        inquiries.settle(":1.1", inquiry: number)
        let result2 = inquiries.finish()
        #expect(result2 == nil)
        inquiries.gone(":1.2")
        let over = inquiries.finish()
        #expect(over?.waiters == [1])
        #expect(over?.again == false)
        let result3 = inquiries.finish()
        #expect(result3 == nil)
    }

    @Test mutating func timeEndsItsOwnRoundOnly() {
        let number = begin(1, awaiting: [":1.1"])
        let result4 = inquiries.finish(expired: number - 1)
        #expect(result4 == nil)
        let over = inquiries.finish(expired: number)
        #expect(over?.waiters == [1])
        #expect(over?.again == false)
    }

    @Test mutating func whoComesDuringARoundSharesTheNext() {
        let first = begin(1, awaiting: [":1.1"])
        let (second, third) = (inquiries.want(2), inquiries.want(3))
        #expect(!second && !third)
        inquiries.settle(":1.1", inquiry: first)
        let over = inquiries.finish()
        #expect(over?.waiters == [1])
        #expect(over?.again == true)
        let number = inquiries.takeNumber()
        inquiries.began(number, awaiting: [])
        let next = inquiries.finish()
        #expect(next?.waiters == [2, 3])
        #expect(next?.again == false)
    }
}
