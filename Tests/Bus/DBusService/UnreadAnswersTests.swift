import Testing

@testable import DBusService

@Suite struct UnreadAnswersTests {
    private var unread = UnreadAnswers()
    private let room = UnreadAnswers.Room(connection: 80_000, user: 160_000)

    private func standing(_ connection: String, _ user: UInt32 = 1) -> UnreadAnswers.Standing {
        unread.standing(of: connection, user, room)
    }

    @Test mutating func aConnectionIsAskedFromTimeToTime() {
        let much = UnreadAnswers.questionAfter
        // One request at a time.
        let asks = [
            unread.sent(100, to: "a", 1), unread.sent(much, to: "a", 1), unread.sent(much, to: "a", 1),
            unread.read("a"), unread.read("a"), unread.sent(100, to: "a", 1),
        ]
        #expect(asks == [false, true, false, true, false, false])
    }

    @Test mutating func oneUserCannotUseUpTheRequestsThatTheBusAllows() {
        let much = UnreadAnswers.questionAfter
        var asked = 0
        for number in 0..<200 where unread.sent(much, to: "hostile \(number)", 1) { asked += 1 }
        #expect(asked == 16)
        let asksHonest = unread.sent(much, to: "honest", 2)
        let early = unread.overdue()
        // A connection beyond these is asked when another connection of its user has responded.
        let asksAgain = unread.read("hostile 0")
        let overdue = unread.overdue()
        #expect(asksHonest && early.isEmpty && !asksAgain && overdue.count == 1)
    }

    @Test("six users whose connections never respond leave requests for 28 other users")
    mutating func firstQuestions() {
        let much = UnreadAnswers.questionAfter
        for user in 1...6 as ClosedRange<UInt32> {
            for number in 0..<20 { _ = unread.sent(much, to: "\(user) \(number)", user) }
        }
        var asked = 0
        for user in 100..<140 as Range<UInt32> where unread.sent(much, to: "honest \(user)", user) { asked += 1 }
        #expect(asked == 28)
    }

    @Test mutating func afterAFailedRequestAConnectionIsAskedAgainWithBackOff() {
        let asks = unread.sent(100_000, to: "a", 1)
        #expect(asks && standing("a") == .nothing)
        let whileAsked = unread.dropped("a")
        #expect(!whileAsked, "one request at a time")
        unread.failedToAsk("a")
        var asked: [Int] = []
        for call in 2..<40 where unread.dropped("a") {
            asked.append(call)
            unread.failedToAsk("a")
        }
        #expect(asked == [2, 4, 8, 16, 32])
        while !unread.dropped("a") {}
        _ = unread.read("a")
        #expect(standing("a") == .anything)
        let ofStranger = unread.dropped("b")
        #expect(!ofStranger)
    }

    @Test mutating func aConnectionThatReadsGetsEveryResponse() {
        for _ in 0..<1000 { if unread.sent(1000, to: "a", 1) { _ = unread.read("a") } }
        #expect(standing("a") == .anything)
    }

    @Test mutating func aConnectionThatDoesNotReadGetsRefusalsAndThenNothing() {
        for _ in 0..<80 { _ = unread.sent(1000, to: "a", 1) }
        #expect(standing("a") == .refusals)
        for _ in 0..<20 { _ = unread.sent(1000, to: "a", 1) }
        #expect(standing("a") == .nothing && standing("b") == .anything)
        // Only the data sent before the request has been read now.
        let asks = unread.read("a")
        #expect(asks && standing("a") == .refusals)
        let asksAgain = unread.read("a")
        #expect(!asksAgain && standing("a") == .anything)
    }

    @Test mutating func theConnectionsOfAUserHaveALimitTogether() {
        for connection in ["a", "b", "c", "d"] { _ = unread.sent(40_000, to: connection, 1) }
        #expect([standing("a"), standing("new"), standing("new", 2)] == [.refusals, .refusals, .anything])
        unread.gone("d")
        #expect(standing("a") == .anything)
    }

    @Test mutating func unreadResponsesOfANewcomerCountForItsUserOnceThatIsKnown() {
        _ = unread.sent(160_000, to: "a", nil)
        #expect(standing("b") == .anything)
        _ = unread.sent(1, to: "a", 1)
        #expect(standing("b") == .refusals)
        unread.gone("a")
        #expect(standing("b") == .anything)
    }

    @Test mutating func aFailedRequestIsRepeated() {
        var asks = [unread.sent(20_000, to: "a", 1)]
        unread.failedToAsk("a")
        asks.append(unread.sent(1, to: "a", 1))
        unread.gone("a")
        asks.append(unread.read("a"))
        #expect(asks == [true, true, false])
    }

    @Test mutating func aConnectionThatMayBeGoneIsAskedAtOnce() {
        let asks = unread.sent(1, to: "a", nil, isLate: true)
        #expect(asks)
    }
}

@Suite struct BusQuestionsTests {
    private var bus = BusQuestions()
    private let start = SuspendingClock.now

    /// Returns the next action at this time, as a word.
    private mutating func step(_ seconds: Double, unread: Int? = nil) -> String {
        switch bus.next(now: start + .seconds(seconds), unread: unread) {
        case .wait(nil): "wait"
        case .wait(let time?): "wait \(time / .seconds(1))"
        case .ask: "ask"
        case .probe: "probe"
        }
    }

    @Test("the kernel is asked for unread data only when the response is late")
    mutating func kernelIsAskedLate() {
        var looks = 0
        func unread() -> Int? {
            looks += 1
            return 1
        }
        let start = SuspendingClock.now
        _ = bus.sent()
        _ = bus.next(now: start, unread: unread())
        _ = bus.next(now: start + .seconds(9), unread: unread())
        #expect(looks == 0)
        _ = bus.next(now: start + .seconds(10), unread: unread())
        #expect(looks == 1)
    }

    @Test mutating func theBusIsAskedOnceASecondAndOnlyAfterSomethingWasSent() {
        var steps = [step(0)]
        let isFirst = bus.sent()
        steps.append(step(0))
        // One request at a time.
        let isFirstAgain = bus.sent()
        steps.append(step(5))
        bus.answered()
        steps += [step(0.5), step(1)]
        bus.answered()
        steps.append(step(9))
        #expect(steps == ["wait", "ask", "wait 5.0", "wait 0.5", "ask", "wait"])
        #expect(isFirst && isFirstAgain)
    }

    // The response may be queued behind thousands of messages from other senders.
    @Test mutating func aBusThatReadsIsNotProbedEvenIfItsResponseIsLate() {
        _ = bus.sent()
        let steps = [
            step(0), step(10, unread: 0), step(19, unread: 9), step(20, unread: 9), step(22, unread: 8),
            step(32, unread: 8), step(34, unread: 8),
        ]
        #expect(steps == ["ask", "wait 10.0", "wait 1.0", "wait 2.0", "wait 10.0", "wait 2.0", "probe"])
    }

    @Test mutating func withoutAResponseTheBusIsProbedAfterASecondLook() {
        _ = bus.sent()
        var steps = [step(0), step(9), step(600), step(601), step(602), step(603)]
        // The bus does not respond, so the probe is repeated.
        bus.probedInVain(now: start + .seconds(620))
        steps += [step(621), step(622)]
        #expect(steps == ["ask", "wait 1.0", "wait 2.0", "wait 1.0", "probe", "wait", "wait 1.0", "probe"])
    }

    @Test mutating func aResponseThatArrivedDuringAPauseIsSeenByTheSecondLook() {
        _ = bus.sent()
        var steps = [step(0), step(600)]
        bus.answered()
        steps.append(step(602))
        #expect(steps == ["ask", "wait 2.0", "wait"])
    }

    @Test mutating func aResponseEndsAProbeAndALaterRequestIsProbedAgain() {
        _ = bus.sent()
        var steps = [step(0), step(10), step(12)]
        let isProbing = bus.isProbing
        bus.answered()
        let isStillProbing = bus.isProbing
        _ = bus.sent()
        steps += [step(20), step(30), step(32)]
        #expect(steps == ["ask", "wait 2.0", "probe", "ask", "wait 2.0", "probe"])
        #expect(isProbing && !isStillProbing)
    }
}
