import Testing

@testable import DBusService

@Suite struct UnreadAnswersTests {
    private var unread = UnreadAnswers()
    private let room = UnreadAnswers.Room(connection: 80_000, user: 160_000)

    private func standing(_ connection: String, _ user: UInt32 = 1) -> UnreadAnswers.Standing {
        unread.standing(of: connection, user, room)
    }

    @Test("a connection is asked from time to time, and gets all responses if it reads")
    mutating func questions() {
        let much = UnreadAnswers.questionAfter
        // One request at a time.
        let asks = [
            unread.sent(100, to: "a", 1), unread.sent(much, to: "a", 1), unread.sent(much, to: "a", 1),
            unread.read("a"), unread.read("a"), unread.sent(100, to: "a", 1),
        ]
        #expect(asks == [false, true, false, true, false, false])
        let asksLate = unread.sent(1, to: "late", nil, isLate: true)
        #expect(asksLate)
        for _ in 0..<1000 { if unread.sent(1000, to: "reader", 1) { _ = unread.read("reader") } }
        #expect(standing("reader") == .anything)
    }

    @Test("users cannot use up the requests that the bus allows")
    mutating func firstQuestions() {
        let much = UnreadAnswers.questionAfter
        let asked = (0..<200).count { unread.sent(much, to: "hostile \($0)", 1) }
        #expect(asked == 16)
        let asksHonest = unread.sent(much, to: "honest", 2)
        let early = unread.overdue()
        // A connection beyond these is asked when another connection of its user has responded.
        let asksAgain = unread.read("hostile 0")
        let overdue = unread.overdue()
        #expect(asksHonest && early.isEmpty && !asksAgain && overdue.count == 1)
        unread = UnreadAnswers()
        for user in 1...6 as ClosedRange<UInt32> {
            for number in 0..<20 { _ = unread.sent(much, to: "\(user) \(number)", user) }
        }
        let others = (100..<140 as Range<UInt32>).count { unread.sent(much, to: "honest \($0)", $0) }
        #expect(others == 28)
    }

    @Test("after a failed request a connection is asked again, with back-off")
    mutating func failedRequests() {
        var asks = [unread.sent(20_000, to: "b", 1)]
        unread.failedToAsk("b")
        asks.append(unread.sent(1, to: "b", 1))
        unread.gone("b")
        asks += [unread.read("b"), unread.sent(100_000, to: "a", 1)]
        #expect(asks == [true, true, false, true] && standing("a") == .nothing)
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
        let ofStranger = unread.dropped("stranger")
        #expect(!ofStranger)
    }

    @Test("a connection that does not read gets refusals and then nothing")
    mutating func unreadData() {
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

    @Test("the connections of a user have a limit together, once their user is known")
    mutating func limitOfUser() {
        for connection in ["a", "b", "c", "d"] { _ = unread.sent(40_000, to: connection, 1) }
        #expect([standing("a"), standing("new"), standing("new", 2)] == [.refusals, .refusals, .anything])
        unread.gone("d")
        #expect(standing("a") == .anything)
        _ = unread.sent(160_000, to: "newcomer", nil)
        #expect(standing("other", 3) == .anything)
        _ = unread.sent(1, to: "newcomer", 3)
        #expect(standing("other", 3) == .refusals)
        unread.gone("newcomer")
        #expect(standing("other", 3) == .anything)
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

    @Test("only a bus that is late and does not read is probed")
    mutating func lateResponse() {
        var looks = 0
        func unread() -> Int? {
            looks += 1
            return 1
        }
        _ = bus.sent()
        for seconds in [0, 9] { _ = bus.next(now: start + .seconds(seconds), unread: unread()) }
        #expect(looks == 0, "the response is not late")
        _ = bus.next(now: start + .seconds(10), unread: unread())
        #expect(looks == 1)
        bus = BusQuestions()
        _ = bus.sent()
        // The response may be queued behind thousands of messages from other senders.
        let reading = [
            step(0), step(10, unread: 0), step(19, unread: 9), step(20, unread: 9), step(22, unread: 8),
            step(32, unread: 8), step(34, unread: 8),
        ]
        #expect(reading == ["ask", "wait 10.0", "wait 1.0", "wait 2.0", "wait 10.0", "wait 2.0", "probe"])
    }

    @Test("a probe follows a second look, and is repeated until there is a response")
    mutating func probes() {
        _ = bus.sent()
        var steps = [step(0), step(9), step(600), step(601), step(602), step(603)]
        bus.probedInVain(now: start + .seconds(620))
        steps += [step(621), step(622)]
        #expect(steps == ["ask", "wait 1.0", "wait 2.0", "wait 1.0", "probe", "wait", "wait 1.0", "probe"])
        #expect(bus.isProbing)
        bus.answered()
        #expect(!bus.isProbing)
        _ = bus.sent()
        steps = [step(700), step(710), step(712)]
        #expect(steps == ["ask", "wait 2.0", "probe"], "a later request is probed again")
        bus = BusQuestions()
        _ = bus.sent()
        steps = [step(0), step(600)]
        bus.answered()
        steps.append(step(602))
        #expect(steps == ["ask", "wait 2.0", "wait"], "the response arrived during a pause")
    }
}
