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

    /// Waiters whose rule is now in force, or refused, and what is to be done next.
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
        /// The bus does not hold it; the next user asks again.
        case refused
    }

    /// A user of `rule` who waits; the answer may be that to its fallback.
    private struct Waiting {
        let rule: MatchRule
        let waiter: Waiter
    }

    private struct Entry {
        /// Those who retained it, waiters included, and the table itself where the rule is a fallback in use.
        var users: Int
        var standing: Standing
        let fallback: MatchRule?
        /// As broad as a fallback: at the limit it takes the place of the spare.
        let isBroad: Bool
    }

    private var entries: [MatchRule: Entry] = [:]
    private var nextTicket: UInt64 = 1
    /// Fallbacks that stand in for rules. The table is a user of each of them until the connection is lost.
    private var fallbacks: Set<MatchRule> = []
    private var spareIsHeld = false

    static var spareThreshold: Int { 64 }
    /// Matches nothing: no bus gives out the unique name `:0.0`.
    static var spare: MatchRule { MatchRule(signalFrom: ":0.0", member: "Spare") }

    /// Rules in use.
    var count: Int { entries.count }
    /// Rules that a fallback stands in for.
    var coveredCount: Int { entries.values.count { if case .covered = $0.standing { true } else { false } } }

    /// Adds a user of `rule`. A fallback that is the rule itself marks a broad rule.
    mutating func retain(_ rule: MatchRule, fallback: MatchRule?, waiter: Waiter) -> (Retention, [Action]) {
        let waiting = Waiting(rule: rule, waiter: waiter)
        guard let index = entries.index(forKey: rule) else {
            let isBroad = fallback == rule
            let fallback = isBroad ? nil : fallback
            entries[rule] = Entry(users: 1, standing: .covered, fallback: fallback, isBroad: isBroad)
            if let retention = join(fallback, waiting) { return (retention, []) }
            return (.pending, request(rule, waiters: [waiting]))
        }
        entries.values[index].users += 1
        switch entries.values[index].standing {
        case .active:
            return (.ready, [])
        case .requested(let ticket, let waiters):
            entries.values[index].standing = .requested(ticket: ticket, waiters: waiters + [waiting])
            return (.pending, [])
        case .covered:
            if let retention = join(entries.values[index].fallback, waiting) { return (retention, []) }
            return (.pending, request(rule, waiters: [waiting]))
        case .refused:
            return (.pending, request(rule, waiters: [waiting]))
        }
    }

    /// The equal rule that the table holds, so that a thousand users share one text.
    func shared(_ rule: MatchRule) -> MatchRule { entries.index(forKey: rule).map { entries.keys[$0] } ?? rule }

    /// Ends one use of `rule`.
    mutating func release(_ rule: MatchRule) -> [Action] {
        guard let index = entries.index(forKey: rule) else { return [] }
        entries.values[index].users -= 1
        guard entries.values[index].users <= 0 else { return [] }
        // One that is on its way to the bus is taken back by its answer, which finds no entry.
        if case .active = entries.remove(at: index).value.standing { return [.remove(rule)] }
        return []
    }

    /// The bus's answer to an ``Action/add(_:ticket:)``; `nil` is success.
    mutating func answered(_ rule: MatchRule, ticket: UInt64, error: DBusError?) -> Answer {
        guard case .requested(ticket, let waiters) = entries[rule]?.standing else {
            // Nobody asked for this copy of the rule, or not any more. The spare has no ticket.
            return Answer(actions: error == nil && ticket != 0 ? [.remove(rule)] : [])
        }
        guard let error else {
            entries[rule]?.standing = .active
            return Answer(waiters: waiters.map(\.waiter))
        }
        if error.code == .limitsExceeded {
            if let fallback = entries[rule]?.fallback { return cover(rule, by: fallback, waiters: waiters) }
            if entries[rule]?.isBroad == true, spareIsHeld {
                return Answer(actions: giveUpSpare() + request(rule, waiters: waiters))
            }
        }
        refuse(rule, waiters: waiters)
        return Answer(waiters: waiters.map(\.waiter), error: error)
    }

    /// Forgets what the bus held and asks for it all again, because the connection is a new one. Who waits goes on waiting.
    mutating func reconnected() -> [Action] {
        var waiting: [MatchRule: [Waiting]] = [:]
        for entry in entries.values {
            guard case .requested(_, let waiters) = entry.standing else { continue }
            for waiter in waiters { waiting[waiter.rule, default: []].append(waiter) }
        }
        for fallback in fallbacks { dropUse(of: fallback) }
        fallbacks = []
        spareIsHeld = false
        return entries.keys.flatMap { request($0, waiters: waiting[$0] ?? []) }
    }

    // MARK: Steps

    /// Joins a fallback that is in use; `nil` where there is none that could stand in.
    private mutating func join(_ fallback: MatchRule?, _ waiting: Waiting) -> Retention? {
        guard let fallback, fallbacks.contains(fallback) else { return nil }
        switch entries[fallback]?.standing {
        case .active:
            return .ready
        case .requested(let ticket, let waiters):
            entries[fallback]?.standing = .requested(ticket: ticket, waiters: waiters + [waiting])
            return .pending
        case .covered, .refused, nil:
            return nil
        }
    }

    private mutating func request(_ rule: MatchRule, waiters: [Waiting]) -> [Action] {
        let ticket = nextTicket
        nextTicket += 1
        entries[rule]?.standing = .requested(ticket: ticket, waiters: waiters)
        return spareIfDue() + [.add(rule, ticket: ticket)]
    }

    private mutating func cover(_ rule: MatchRule, by fallback: MatchRule, waiters: [Waiting]) -> Answer {
        entries[rule]?.standing = .covered
        if entries[fallback] == nil {
            entries[fallback] = Entry(users: 0, standing: .refused, fallback: nil, isBroad: true)
        }
        if fallbacks.insert(fallback).inserted { entries[fallback]?.users += 1 }
        switch entries[fallback]?.standing {
        case .active:
            return Answer(waiters: waiters.map(\.waiter))
        case .requested(let ticket, let others):
            entries[fallback]?.standing = .requested(ticket: ticket, waiters: others + waiters)
            return Answer()
        case .covered, .refused, nil:
            return Answer(actions: giveUpSpare() + request(fallback, waiters: waiters))
        }
    }

    /// Those who waited are no users; a rule that had users before stays known, to be asked for again.
    private mutating func refuse(_ rule: MatchRule, waiters: [Waiting]) {
        entries[rule]?.standing = .refused
        if fallbacks.remove(rule) != nil {
            for (covered, entry) in entries where entry.fallback == rule {
                if case .covered = entry.standing { entries[covered]?.standing = .refused }
            }
            dropUse(of: rule)
        }
        for waiting in waiters { dropUse(of: waiting.rule) }
    }

    private mutating func dropUse(of rule: MatchRule) {
        entries[rule]?.users -= 1
        if let users = entries[rule]?.users, users <= 0 { entries[rule] = nil }
    }

    private mutating func giveUpSpare() -> [Action] {
        guard spareIsHeld else { return [] }
        spareIsHeld = false
        return [.remove(Self.spare)]
    }

    private mutating func spareIfDue() -> [Action] {
        guard !spareIsHeld, fallbacks.isEmpty, entries.count >= Self.spareThreshold else { return [] }
        spareIsHeld = true
        // Its answer is of no interest: without a place for the spare there is none for the next rule either.
        return [.add(Self.spare, ticket: 0)]
    }
}
