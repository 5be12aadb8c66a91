import Testing

@testable import DBusTransport

@Suite("Match rules are shared and counted")
struct MatchRuleTableTests {
    private let rule = MatchRule(interface: "org.example.A")
    private let broad = MatchRule(path: "/org/example")
    private let limit = DBusError(.limitsExceeded, message: "full", attempted: "add a rule")
    private var table = MatchRuleTable<Int>()

    private func ticket(_ actions: [MatchRuleTable<Int>.Action], _ rule: MatchRule) throws -> UInt64 {
        try #require(
            actions.compactMap { action -> UInt64? in
                if case .add(rule, let ticket) = action { ticket } else { nil }
            }.first
        )
    }

    @Test("the second user of a rule asks the bus for nothing")
    mutating func sharing() throws {
        let (first, actions) = table.retain(rule, fallback: nil, waiter: 1)
        #expect(first == .pending)
        let (second, none) = table.retain(rule, fallback: nil, waiter: 2)
        #expect(second == .pending)
        #expect(none.isEmpty)
        let answer = table.answered(rule, ticket: try ticket(actions, rule), error: nil)
        #expect(answer.waiters == [1, 2])
        let third = table.retain(rule, fallback: nil, waiter: 3)
        #expect(third.0 == .ready)
        let afterFirst = table.release(rule)
        #expect(afterFirst.isEmpty)
        let afterSecond = table.release(rule)
        #expect(afterSecond.isEmpty)
        let afterThird = table.release(rule)
        #expect(afterThird == [.remove(rule)])
    }

    @Test("a refused rule tells those who wait, and the next user asks again")
    mutating func refusal() throws {
        let refused = DBusError(.refused, message: "no", attempted: "add a rule")
        let (_, actions) = table.retain(rule, fallback: nil, waiter: 1)
        let answer = table.answered(rule, ticket: try ticket(actions, rule), error: refused)
        #expect(answer.error == refused)
        #expect(table.count == 0)
        let (_, again) = table.retain(rule, fallback: nil, waiter: 2)
        _ = try ticket(again, rule)
    }

    @Test("at the limit the fallback takes over, for this rule and for all that follow")
    mutating func fallback() throws {
        let (_, actions) = table.retain(rule, fallback: broad, waiter: 1)
        let covering = table.answered(rule, ticket: try ticket(actions, rule), error: limit)
        #expect(covering.waiters.isEmpty)
        let other = MatchRule(interface: "org.example.B")
        let followerRetention = table.retain(other, fallback: broad, waiter: 2)
        #expect(followerRetention.0 == .pending)
        let answer = table.answered(broad, ticket: try ticket(covering.actions, broad), error: nil)
        #expect(answer.waiters == [1, 2])
        let laterRetention = table.retain(MatchRule(interface: "org.example.C"), fallback: broad, waiter: 3)
        #expect(laterRetention.0 == .ready)
        #expect(table.coveredCount == 3)
        let followerRelease = table.release(other)
        #expect(followerRelease.isEmpty, "the bus never had it")
    }

    @Test("a fallback that has no place either fails everybody, and nobody is counted as a user")
    mutating func noPlaceAtAll() throws {
        let (_, actions) = table.retain(rule, fallback: broad, waiter: 1)
        let covering = table.answered(rule, ticket: try ticket(actions, rule), error: limit)
        let answer = table.answered(broad, ticket: try ticket(covering.actions, broad), error: limit)
        #expect(answer.waiters == [1])
        #expect(answer.error == limit)
        #expect(table.count == 0)
    }

    @Test("a place is kept free for the fallback, so that no rule in use is given up for it")
    mutating func spare() throws {
        var actions: [MatchRuleTable<Int>.Action] = []
        for index in 0...MatchRuleTable<Int>.spareThreshold {
            actions += table.retain(MatchRule(interface: "org.example.N\(index)"), fallback: broad, waiter: index).1
        }
        _ = try ticket(actions, MatchRuleTable<Int>.spare)
        let (_, last) = table.retain(rule, fallback: broad, waiter: -1)
        let covering = table.answered(rule, ticket: try ticket(last, rule), error: limit)
        #expect(covering.actions.first == .remove(MatchRuleTable<Int>.spare))
    }

    @Test("a new connection is asked for every rule again, narrow ones first")
    mutating func reconnection() throws {
        let (_, actions) = table.retain(rule, fallback: broad, waiter: 1)
        let covering = table.answered(rule, ticket: try ticket(actions, rule), error: limit)
        _ = table.answered(broad, ticket: try ticket(covering.actions, broad), error: nil)
        let again = table.reconnected()
        let newTicket = try ticket(again, rule)
        #expect(again.count == 1)
        let reanswer = table.answered(rule, ticket: newTicket, error: nil)
        #expect(reanswer.error == nil)
        #expect(table.coveredCount == 0)
    }

    @Test("an answer to a request that is over changes nothing")
    mutating func lateAnswer() throws {
        let (_, actions) = table.retain(rule, fallback: nil, waiter: 1)
        let old = try ticket(actions, rule)
        _ = table.release(rule)
        let (_, again) = table.retain(rule, fallback: nil, waiter: 2)
        let lateAnswer = table.answered(rule, ticket: old, error: nil)
        #expect(lateAnswer.waiters.isEmpty)
        let answer = table.answered(rule, ticket: try ticket(again, rule), error: nil)
        #expect(answer.waiters == [2])
    }

    @Test("an apostrophe in a rule's value is quoted as the bus reads it; a backslash is literal")
    func quoting() {
        #expect(MatchRule(argument0: "it's \\n").description == #"type='signal',arg0='it'\''s \n'"#)
    }
}
