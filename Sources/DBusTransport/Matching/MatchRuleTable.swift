/// Which rules the bus holds for us, how many users each has, and who waits for an answer. Pure: it decides, the connection
/// acts (architecture, D2).
///
/// A bus limits the rules of one connection. When it refuses one, the broader `fallback` takes its place, and every later rule
/// with that fallback too; messages that nobody asked for are then filtered in the process. The fallback needs a place of its
/// own, so a spare rule that matches nothing is kept from ``spareThreshold`` rules on and gives up its place at the limit:
/// no rule in use is ever taken back for it.
struct MatchRuleTable<Waiter> {
    enum Action: Equatable {
        /// Ask the bus for the rule and report to ``answered(_:ticket:error:)`` with this ticket.
        case add(MatchRule, ticket: UInt64)
        /// Take the rule back; nobody waits for the answer.
        case remove(MatchRule)
    }

    /// What became of a request.
    enum Retention {
        /// The rule is in force.
        case ready
        /// The waiter is called by a later ``answered(_:ticket:error:)``.
        case pending
    }

    /// Waiters whose rule is now in force, or refused.
    struct Answer {
        var waiters: [Waiter] = []
        var error: DBusError?
        var actions: [Action] = []
    }

    private enum Standing {
        case requested(ticket: UInt64, waiters: [Waiting])
        case active
        /// The fallback stands in for it.
        case covered
        /// The bus took it back at a reconnection; the next user asks again.
        case refused
    }

    /// A user of `rule` who waits; the answer may be that to its fallback.
    private struct Waiting {
        let rule: MatchRule
        let waiter: Waiter
    }

    private struct Entry {
        var users: Int
        var standing: Standing
        let fallback: MatchRule?
    }

    private var entries: [MatchRule: Entry] = [:]
    private var nextTicket: UInt64 = 1
    /// Fallbacks that the bus was asked for because of a limit; they stay until the connection is lost.
    private var fallbacks: Set<MatchRule> = []
    private var spareIsHeld = false

    static var spareThreshold: Int { 64 }
    /// Matches nothing: no bus gives out the unique name `:0.0`.
    static var spare: MatchRule { MatchRule(signalFrom: ":0.0", member: "Spare") }

    /// Rules in use.
    var count: Int { entries.count }
    /// Rules that a fallback stands in for.
    var coveredCount: Int { entries.values.count { if case .covered = $0.standing { true } else { false } } }

    /// Adds a user of `rule`.
    mutating func retain(_ rule: MatchRule, fallback: MatchRule?, waiter: Waiter) -> (Retention, [Action]) {
        let waiting = Waiting(rule: rule, waiter: waiter)
        if let index = entries.index(forKey: rule) {
            entries.values[index].users += 1
            switch entries.values[index].standing {
            case .active, .covered:
                return (.ready, [])
            case .requested(let ticket, let waiters):
                entries.values[index].standing = .requested(ticket: ticket, waiters: waiters + [waiting])
                return (.pending, [])
            case .refused:
                let ticket = takeTicket()
                entries.values[index].standing = .requested(ticket: ticket, waiters: [waiting])
                return (.pending, [.add(rule, ticket: ticket)])
            }
        }
        if let fallback, fallbacks.contains(fallback), let standing = entries[fallback]?.standing {
            entries[rule] = Entry(users: 1, standing: .covered, fallback: fallback)
            guard case .requested(let ticket, let waiters) = standing else { return (.ready, []) }
            entries[fallback]?.standing = .requested(ticket: ticket, waiters: waiters + [waiting])
            return (.pending, [])
        }
        let ticket = takeTicket()
        entries[rule] = Entry(users: 1, standing: .requested(ticket: ticket, waiters: [waiting]), fallback: fallback)
        return (.pending, spareIfDue() + [.add(rule, ticket: ticket)])
    }

    /// The equal rule that the table holds, so that a thousand users share one text.
    func shared(_ rule: MatchRule) -> MatchRule { entries.index(forKey: rule).map { entries.keys[$0] } ?? rule }

    /// Ends one use of `rule`.
    mutating func release(_ rule: MatchRule) -> [Action] {
        guard let index = entries.index(forKey: rule) else { return [] }
        entries.values[index].users -= 1
        guard entries.values[index].users == 0 else { return [] }
        switch entries.remove(at: index).value.standing {
        case .covered, .refused: return []
        case .requested, .active: return [.remove(rule)]
        }
    }

    /// The bus's answer to an ``Action/add(_:ticket:)``; `nil` is success.
    mutating func answered(_ rule: MatchRule, ticket: UInt64, error: DBusError?) -> Answer {
        guard case .requested(ticket, let waiters) = entries[rule]?.standing else { return Answer() }
        guard let error else {
            entries[rule]?.standing = .active
            return Answer(waiters: waiters.map(\.waiter))
        }
        guard error.code == .limitsExceeded, let fallback = entries[rule]?.fallback else {
            refuse(rule, waiters: waiters)
            return Answer(waiters: waiters.map(\.waiter), error: error)
        }
        return cover(rule, by: fallback, waiters: waiters)
    }

    /// Forgets what the bus held and asks for it all again, because the connection is a new one.
    mutating func reconnected() -> [Action] {
        for fallback in fallbacks { entries[fallback] = nil }
        fallbacks = []
        spareIsHeld = false
        var actions: [Action] = []
        for rule in entries.keys {
            let ticket = takeTicket()
            entries[rule]?.standing = .requested(ticket: ticket, waiters: [])
            actions += spareIfDue() + [.add(rule, ticket: ticket)]
        }
        return actions
    }

    private mutating func cover(_ rule: MatchRule, by fallback: MatchRule, waiters: [Waiting]) -> Answer {
        entries[rule]?.standing = .covered
        if case .requested(let ticket, let others) = entries[fallback]?.standing {
            entries[fallback]?.standing = .requested(ticket: ticket, waiters: others + waiters)
            return Answer()
        }
        guard entries[fallback] == nil else {
            fallbacks.insert(fallback)
            return Answer(waiters: waiters.map(\.waiter))
        }
        var actions: [Action] = []
        if spareIsHeld {
            spareIsHeld = false
            actions.append(.remove(Self.spare))
        }
        let ticket = takeTicket()
        fallbacks.insert(fallback)
        // The table itself is the user: a fallback outlives the rules that it covers.
        entries[fallback] = Entry(users: 1, standing: .requested(ticket: ticket, waiters: waiters), fallback: nil)
        return Answer(actions: actions + [.add(fallback, ticket: ticket)])
    }

    /// Those who waited are no users; a rule that had users before stays known, to be asked for again.
    private mutating func refuse(_ rule: MatchRule, waiters: [Waiting]) {
        entries[rule]?.standing = .refused
        if fallbacks.remove(rule) != nil {
            entries[rule] = nil
            for (covered, entry) in entries where entry.fallback == rule {
                if case .covered = entry.standing { entries[covered]?.standing = .refused }
            }
        }
        for waiting in waiters {
            entries[waiting.rule]?.users -= 1
            if let users = entries[waiting.rule]?.users, users <= 0 { entries[waiting.rule] = nil }
        }
    }

    private mutating func spareIfDue() -> [Action] {
        guard !spareIsHeld, fallbacks.isEmpty, entries.count >= Self.spareThreshold else { return [] }
        spareIsHeld = true
        // Its answer is of no interest: without a place for the spare there is none for the next rule either.
        return [.add(Self.spare, ticket: 0)]
    }

    private mutating func takeTicket() -> UInt64 {
        defer { nextTicket += 1 }
        return nextTicket
    }
}
