import Synchronization
import Testing

@testable import Basics
@testable import DBus

/// A table whose waiters are numbered.
private struct RuleTable {
    var table = MatchRuleTable()
    private let told = Shared()

    private final class Shared: Sendable { let waiters = Locked<[Int]>([]) }

    mutating func retain(
        _ rule: MatchRule,
        fallback: MatchRule? = nil,
        isConnected: Bool = true,
        waiter: Int
    ) -> (handle: Int, retention: MatchRuleTable.Retention, actions: [MatchRuleTable.Action]) {
        let told = told
        let (handle, retention, actions) = table.retain(rule, fallback: fallback, isConnected: isConnected) { _ in
            told.waiters.withLock { $0.append(waiter) }
        }
        return (handle, retention, actions)
    }

    mutating func release(_ handle: Int) -> [MatchRuleTable.Action] { table.release(handle) }

    /// Plays the bus's response to the request for `rule` among the actions. Returns the waiters that were notified,
    /// and the next actions.
    mutating func answer(
        _ rule: MatchRule,
        of actions: [MatchRuleTable.Action],
        error: DBusError? = nil
    ) throws -> (waiters: [Int], error: DBusError?, actions: [MatchRuleTable.Action]) {
        let answer = table.answered(rule, try request(rule, in: actions), error: error)
        for waiter in answer.waiters { waiter(answer.error) }
        return (notified(), answer.error, answer.actions)
    }

    /// Plays the loss of the bus. Returns the waiters that were notified.
    mutating func lost() -> [Int] {
        for waiter in table.lost() { waiter(.disconnected("")) }
        return notified()
    }

    /// The waiters that were notified since the last call.
    private func notified() -> [Int] {
        told.waiters.withLock { waiters in
            defer { waiters = [] }
            return waiters
        }
    }

    func request(_ rule: MatchRule, in actions: [MatchRuleTable.Action]) throws -> MatchRuleTable.Request {
        try #require(
            actions.compactMap { action -> MatchRuleTable.Request? in
                if case .add(rule, let request) = action { request } else { nil }
            }.first
        )
    }
}

extension MatchRuleTable.Retention {
    fileprivate var name: String {
        switch self {
        case .inForce: "in force"
        case .pending: "pending"
        case .failed(let error): "\(error.code)"
        }
    }
}

@Suite("Match rules are shared and counted")
struct MatchRuleTableTests {
    private let rule = MatchRule(interface: "org.example.A")
    private let other = MatchRule(interface: "org.example.B")
    private let broad = MatchRule(path: "/org/example")
    private let limit = DBusError(
        .limitsExceeded,
        name: "org.freedesktop.DBus.Error.LimitsExceeded",
        message: "full",
        attempted: "add a rule"
    )
    private let refused = DBusError(.refused, message: "no", attempted: "add a rule")
    private var rules = RuleTable()

    private mutating func fill(_ count: Int = MatchRuleTable.spareThreshold + 1) -> [MatchRuleTable.Action] {
        var actions: [MatchRuleTable.Action] = []
        for index in 0..<count {
            actions +=
                rules.retain(MatchRule(interface: "org.example.N\(index)"), fallback: broad, waiter: index).actions
        }
        return actions
    }

    @Test("the second user of a rule sends nothing to the bus")
    mutating func sharing() throws {
        let first = rules.retain(rule, waiter: 1)
        let second = rules.retain(rule, waiter: 2)
        #expect(second.actions.isEmpty && second.handle == first.handle)
        let answer = try rules.answer(rule, of: first.actions)
        #expect(answer.waiters == [1, 2])
        let third = rules.retain(rule, waiter: 3)
        #expect([first, second, third].map(\.retention.name) == ["pending", "pending", "in force"])
        let releases = (0..<3).map { _ in rules.release(first.handle) }
        #expect(releases == [[], [], [.remove(rule)]] && rules.table.count == 0)
    }

    @Test("a refusal reaches the waiters; the next user requests the rule again")
    mutating func refusal() throws {
        let first = rules.retain(rule, waiter: 1)
        let answer = try rules.answer(rule, of: first.actions, error: refused)
        #expect(answer.waiters == [1] && answer.error == refused && rules.table.notInForceCount == 1)
        let second = rules.retain(rule, waiter: 2)
        _ = try rules.answer(rule, of: second.actions)
        #expect(second.handle == first.handle && rules.table.notInForceCount == 0)
        let releases = (0..<2).map { _ in rules.release(first.handle) }
        #expect(releases == [[], [.remove(rule)]])
    }

    @Test("a rule added in an outage is kept and requested when the bus is back")
    mutating func outage() throws {
        let kept = rules.retain(rule, isConnected: false, waiter: 1)
        #expect(kept.retention.name == "disconnected" && kept.actions.isEmpty)
        let actions = rules.table.reconnected()
        let answer = try rules.answer(rule, of: actions)
        #expect(answer.waiters == [] && rules.table.notInForceCount == 0, "the waiter was told already")
    }

    @Test("a late bus fails the waiters, and its response still counts")
    mutating func lateBus() throws {
        let late = DBusError(.timedOut, message: "no response", attempted: "add a rule")
        let first = rules.retain(rule, waiter: 1)
        #expect(try rules.answer(rule, of: first.actions, error: late).waiters == [1])
        let second = rules.retain(rule, waiter: 2)
        #expect(second.retention.name == "timedOut", "the second waiter does not wait again")
        #expect(second.actions.isEmpty && rules.table.notInForceCount == 1)
        let answer = try rules.answer(rule, of: first.actions)
        #expect(answer.waiters == [] && rules.table.notInForceCount == 0)
    }

    @Test("at the limit a fallback replaces this rule and later ones; if refused, all fail")
    mutating func fallback() throws {
        let first = rules.retain(rule, fallback: broad, waiter: 1)
        let covering = try rules.answer(rule, of: first.actions, error: limit)
        #expect(covering.waiters.isEmpty)
        let follower = rules.retain(other, fallback: broad, waiter: 2)
        #expect(follower.retention.name == "pending")
        #expect(try Set(rules.answer(broad, of: covering.actions).waiters) == [1, 2])
        let later = rules.retain(MatchRule(interface: "org.example.C"), fallback: broad, waiter: 3)
        #expect(later.retention.name == "in force")
        #expect(rules.table.coveredCount == 3 && rules.table.notInForceCount == 0)
        #expect(rules.release(follower.handle).isEmpty, "the bus never had it")
        // The bus refuses the fallback too.
        rules = RuleTable()
        let only = rules.retain(rule, fallback: broad, waiter: 1)
        let refused = try rules.answer(rule, of: only.actions, error: limit)
        let answer = try rules.answer(broad, of: refused.actions, error: limit)
        #expect(answer.waiters == [1] && answer.error == limit && rules.table.notInForceCount == 1)
        #expect(rules.release(only.handle).isEmpty, "the bus never held it")
        #expect(rules.table.count == 0)
    }

    /// Retains rules. The bus grants the first `count`, refuses the last, and then grants the fallback.
    ///
    /// - Returns: the handles, and the table's actions once the fallback is in force.
    private mutating func cover(granting count: Int) throws -> (handles: [Int], actions: [MatchRuleTable.Action]) {
        var handles: [Int] = []
        for index in 0..<count {
            let (handle, _, actions) = rules.retain(numbered(index), fallback: broad, waiter: index)
            handles.append(handle)
            _ = try rules.answer(numbered(index), of: actions)
        }
        let (handle, _, actions) = rules.retain(numbered(count), fallback: broad, waiter: count)
        let covering = try rules.answer(numbered(count), of: actions, error: limit)
        return (handles + [handle], try rules.answer(broad, of: covering.actions).actions)
    }

    private func numbered(_ index: Int) -> MatchRule { MatchRule(interface: "org.example.N\(index)") }

    @Test("once the fallback is in force, the rules that it replaces are released")
    mutating func givingBack() throws {
        // Requested before the limit was reached, and granted after the fallback.
        let slow = rules.retain(rule, fallback: broad, waiter: -1)
        let covered = try cover(granting: 4)
        #expect(covered.actions == (0..<4).map { .remove(numbered($0)) })
        #expect(try rules.answer(rule, of: slow.actions).actions == [.remove(rule)])
        #expect(rules.table.coveredCount == 6 && rules.table.notInForceCount == 0)
        #expect(rules.release(covered.handles[0]).isEmpty, "the bus does not have it any more")
    }

    @Test("rules that have become few replace the fallback if the bus grants all")
    mutating func fewerRules() throws {
        let covered = try cover(granting: 4)
        for handle in covered.handles[..<2] { #expect(rules.release(handle).isEmpty) }
        let requests = rules.release(covered.handles[2])
        #expect(requests.count == 2 && rules.table.notInForceCount == 0, "the fallback is still in force")
        #expect(try rules.answer(numbered(3), of: requests).actions.isEmpty)
        let joining = rules.retain(other, fallback: broad, waiter: 5)
        #expect(joining.retention.name == "in force")
        #expect(try rules.answer(numbered(4), of: requests).actions.isEmpty, "one is missing")
        #expect(try rules.answer(other, of: joining.actions).actions == [.remove(broad)])
        #expect(rules.table.count == 3 && rules.table.coveredCount == 0 && rules.table.notInForceCount == 0)
        #expect(rules.release(joining.handle) == [.remove(other)])
        // The bus grants too few of them.
        rules = RuleTable()
        let again = try cover(granting: 4)
        let tooMany = again.handles[..<3].flatMap { rules.release($0) }
        _ = try rules.answer(numbered(3), of: tooMany)
        let refusal = try rules.answer(numbered(4), of: tooMany, error: limit)
        #expect(refusal.actions == [.remove(numbered(3))] && refusal.error == nil)
        #expect(rules.table.coveredCount == 2 && rules.table.notInForceCount == 0)
        #expect(rules.release(again.handles[3]).isEmpty)
        #expect(rules.release(again.handles[4]) == [.remove(broad)] && rules.table.count == 0)
    }

    @Test("a spare rule keeps room for the fallback if the bus has granted it")
    mutating func spare() throws {
        let filling = fill()
        _ = try rules.request(MatchRuleTable.spareRule, in: filling)
        let last = rules.retain(rule, fallback: broad, waiter: -1)
        let covering = try rules.answer(rule, of: last.actions, error: limit)
        #expect(covering.actions.first == .remove(MatchRuleTable.spareRule))
        _ = try rules.request(broad, in: covering.actions)
        // The bus refuses the spare.
        rules = RuleTable()
        let refusing = fill()
        _ = try rules.answer(MatchRuleTable.spareRule, of: refusing, error: limit)
        let next = rules.retain(rule, fallback: broad, waiter: -1)
        #expect(next.actions.count == 1, "there is no place for the spare")
        let fallingBack = try rules.answer(rule, of: next.actions, error: limit)
        #expect(!fallingBack.actions.contains(.remove(MatchRuleTable.spareRule)))
        // The response to the first request for the spare comes after a reconnection.
        rules = RuleTable()
        let slow = fill()
        let late = DBusError(.timedOut, message: "no response", attempted: "add a rule")
        _ = try rules.answer(MatchRuleTable.spareRule, of: slow, error: late)
        _ = rules.lost()
        let again = rules.table.reconnected()
        _ = try rules.answer(MatchRuleTable.spareRule, of: slow, error: .disconnected("add a rule"))
        let latest = rules.retain(rule, fallback: broad, waiter: -1)
        let releasing = try rules.answer(rule, of: latest.actions, error: limit)
        #expect(releasing.actions.first == .remove(MatchRuleTable.spareRule))
        withExtendedLifetime(again) {}
    }

    @Test("a reconnection requests every rule again, and only a loss ends the waits")
    mutating func reconnection() throws {
        let first = rules.retain(rule, fallback: broad, waiter: 1)
        let covering = try rules.answer(rule, of: first.actions, error: limit)
        _ = try rules.answer(broad, of: covering.actions)
        let told = rules.lost()
        #expect(told == [] && rules.table.notInForceCount == 1)
        let again = rules.table.reconnected()
        #expect(again.count == 1, "the fallback is not asked for before it is needed")
        let answer = try rules.answer(rule, of: again)
        #expect(answer.error == nil && rules.table.coveredCount == 0 && rules.table.notInForceCount == 0)
        // Waiters keep waiting across a reconnection.
        rules = RuleTable()
        _ = rules.retain(rule, fallback: broad, waiter: 1)
        let requests = rules.table.reconnected()
        #expect(try rules.answer(rule, of: requests).waiters == [1])
        // The table is requesting the fallback.
        let second = rules.retain(other, fallback: broad, waiter: 2)
        _ = try rules.answer(other, of: second.actions, error: limit)
        let third = rules.table.reconnected()
        #expect(third.count == 2)
        #expect(try rules.answer(other, of: third).waiters == [2])
        // A loss notifies a waiter for a fallback.
        rules = RuleTable()
        let only = rules.retain(rule, fallback: broad, waiter: 1)
        let waiting = try rules.answer(rule, of: only.actions, error: limit)
        #expect(rules.lost() == [1])
        // The response to the fallback's request comes after the loss, when it has no waiters.
        let late = try rules.answer(broad, of: waiting.actions, error: .disconnected("add a rule"))
        #expect(late.waiters == [])
        #expect(rules.table.reconnected().count == 1)
    }

    @Test("a late response removes a surplus copy and spares a new rule in its slot")
    mutating func surplusCopies() throws {
        let first = rules.retain(rule, waiter: 1)
        let again = rules.table.reconnected()
        let old = try rules.answer(rule, of: first.actions)
        #expect(old.actions == [.remove(rule)] && old.waiters.isEmpty)
        #expect(try rules.answer(rule, of: again).waiters == [1])
        // The last user leaves while the request is in flight.
        let third = rules.table.reconnected()
        #expect(rules.release(first.handle).isEmpty)
        #expect(try rules.answer(rule, of: third).actions == [.remove(rule)])
        rules = RuleTable()
        let finished = rules.retain(rule, waiter: 1)
        _ = rules.release(finished.handle)
        let second = rules.retain(other, waiter: 2)
        #expect(second.handle == finished.handle)
        let late = try rules.answer(rule, of: finished.actions)
        #expect(late.waiters.isEmpty && late.actions == [.remove(rule)])
        #expect(try rules.answer(other, of: second.actions).waiters == [2])
    }

    @Test("a broad rule is never its own fallback: it replaces the spare, or fails")
    mutating func broadRuleAtLimit() throws {
        let first = rules.retain(broad, fallback: broad, waiter: -1)
        let answer = try rules.answer(broad, of: first.actions, error: limit)
        #expect(answer.error == limit)
        _ = rules.release(first.handle)
        #expect(rules.table.count == 0)
        _ = fill()
        let second = rules.retain(broad, fallback: broad, waiter: -1)
        let retry = try rules.answer(broad, of: second.actions, error: limit)
        #expect(retry.actions.first == .remove(MatchRuleTable.spareRule))
        #expect(try rules.answer(broad, of: retry.actions).waiters == [-1])
    }

    @Test("a rule that is used and also a fallback stays until neither use needs it")
    mutating func fallbackWithUsers() throws {
        let wide = rules.retain(broad, fallback: broad, waiter: 1)
        _ = try rules.answer(broad, of: wide.actions)
        let narrow = rules.retain(rule, fallback: broad, waiter: 2)
        #expect(try rules.answer(rule, of: narrow.actions, error: limit).waiters == [2])
        #expect(rules.release(wide.handle).isEmpty, "it stands in for the other rule")
        let asked = rules.retain(broad, fallback: broad, waiter: 3)
        #expect(asked.retention.name == "in force")
        let again = rules.table.reconnected()
        #expect(again.count == 2)
        _ = try rules.request(broad, in: again)
    }

    @Test("letters of rules are compared by bytes, and apostrophes are quoted")
    mutating func spellings() {
        let composed = rules.retain(MatchRule(interface: "a", argument0: "\u{e9}"), waiter: 1)
        let decomposed = rules.retain(MatchRule(interface: "a", argument0: "e\u{301}"), waiter: 2)
        #expect(composed.handle != decomposed.handle && decomposed.actions.count == 1)
        #expect(MatchRule(argument0: "it's \\n").description == #"type='signal',arg0='it'\''s \n'"#)
    }
}
