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

    @Test("who waits when the bus is lost and found goes on waiting, for the rule or for its fallback")
    mutating func waitingAcrossReconnection() throws {
        _ = table.retain(rule, fallback: broad, waiter: 1)
        let again = table.reconnected()
        let answer = table.answered(rule, ticket: try ticket(again, rule), error: nil)
        #expect(answer.waiters == [1])
        // Under way to the fallback.
        let other = MatchRule(interface: "org.example.B")
        let (_, actions) = table.retain(other, fallback: broad, waiter: 2)
        _ = table.answered(other, ticket: try ticket(actions, other), error: limit)
        let third = table.reconnected()
        #expect(third.count == 2, "the fallback is not asked for before it is needed")
        let narrow = table.answered(other, ticket: try ticket(third, other), error: nil)
        #expect(narrow.waiters == [2])
    }

    @Test("a copy of a rule that nobody needs any more is taken back when the bus confirms it")
    mutating func surplusCopies() throws {
        let (_, first) = table.retain(rule, fallback: nil, waiter: 1)
        let again = table.reconnected()
        let old = table.answered(rule, ticket: try ticket(first, rule), error: nil)
        #expect(old.actions == [.remove(rule)])
        #expect(old.waiters.isEmpty)
        let current = table.answered(rule, ticket: try ticket(again, rule), error: nil)
        #expect(current.waiters == [1])
        // The last user leaves while the rule is on its way.
        let third = table.reconnected()
        let released = table.release(rule)
        #expect(released.isEmpty)
        let late = table.answered(rule, ticket: try ticket(third, rule), error: nil)
        #expect(late.actions == [.remove(rule)])
    }

    @Test("a broad rule is never its own fallback: at the limit it takes the spare's place, or fails")
    mutating func broadRuleAtLimit() throws {
        let (_, actions) = table.retain(broad, fallback: broad, waiter: 1)
        let refused = table.answered(broad, ticket: try ticket(actions, broad), error: limit)
        #expect(refused.error == limit)
        #expect(table.count == 0)
        for index in 0...MatchRuleTable<Int>.spareThreshold {
            _ = table.retain(MatchRule(interface: "org.example.N\(index)"), fallback: broad, waiter: index)
        }
        let (_, second) = table.retain(broad, fallback: broad, waiter: 1)
        let retry = table.answered(broad, ticket: try ticket(second, broad), error: limit)
        #expect(retry.actions.first == .remove(MatchRuleTable<Int>.spare))
        let answer = table.answered(broad, ticket: try ticket(retry.actions, broad), error: nil)
        #expect(answer.waiters == [1])
    }

    @Test("a rule that is both asked for and a fallback stays as long as either needs it, across a reconnection too")
    mutating func fallbackWithUsers() throws {
        let (_, wide) = table.retain(broad, fallback: broad, waiter: 1)
        _ = table.answered(broad, ticket: try ticket(wide, broad), error: nil)
        let (_, actions) = table.retain(rule, fallback: broad, waiter: 2)
        let covered = table.answered(rule, ticket: try ticket(actions, rule), error: limit)
        #expect(covered.waiters == [2])
        let released = table.release(broad)
        #expect(released.isEmpty, "it stands in for the other rule")
        let asked = table.retain(broad, fallback: broad, waiter: 3)
        #expect(asked.0 == .ready)
        let again = table.reconnected()
        #expect(again.count == 2)
        _ = try ticket(again, broad)
    }

    @Test("an answer to a request that is over tells nobody")
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
