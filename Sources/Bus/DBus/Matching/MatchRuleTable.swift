import Basics

/// The match rules of this connection: their users, their state on the bus, and the waiters for the bus's responses.
/// Pure: it decides, and the connection acts (architecture, D2).
///
/// A rule stays in the table while it has a user, even if the bus refused it: each new connection requests it again.
///
/// A bus limits the rules of a connection, or of all connections of a user. When it refuses a rule for that reason, the
/// broader `fallback` replaces every rule with that fallback. Once the fallback is in force, the table removes those
/// rules from the bus, and the process filters out unwanted messages. When half of the rules have lost their users, the
/// table requests the rest again, and then removes the fallback.
///
/// The fallback needs room on the bus. From ``spareThreshold`` rules on, the table therefore holds a spare rule that
/// matches nothing. At the limit it gives up the spare, so that the fallback does not displace a rule in use.
struct MatchRuleTable {
    /// Called once: with `nil` when the rule is in force, or with the reason why it is not.
    typealias Waiter = @Sendable (DBusError?) -> Void

    /// A pending request. The ticket distinguishes its response from responses to earlier requests.
    struct Request: Equatable, Sendable {
        let handle: Int
        let ticket: UInt64

        var isForSpare: Bool { handle == Self.spareHandle }
        fileprivate static let spareHandle = -1
    }

    enum Action: Equatable, Sendable {
        /// Request the rule from the bus, and pass the response to ``answered(_:_:error:)``.
        case add(MatchRule, Request)
        /// Remove the rule from the bus. The response is ignored.
        case remove(MatchRule)
    }

    enum Retention {
        case inForce
        /// A later ``answered(_:_:error:)`` returns the waiter.
        case pending
        /// The rule is not in force, for this reason. The next connection requests it again.
        case failed(DBusError)
    }

    /// The waiters to call, and the next actions of the connection.
    struct Answer {
        var waiters: [Waiter] = []
        var error: DBusError?
        var actions: [Action] = []

        func tell() { for waiter in waiters { waiter(error) } }
    }

    private enum Standing {
        /// The bus has not responded yet. `isLate` once the waiters have been told of a timeout.
        case requested(ticket: UInt64, isLate: Bool)
        case active
        case covered
        /// The bus refused the rule, or is lost. The next user requests it again.
        case absent
    }

    private struct Entry {
        let rule: MatchRule
        let fallback: MatchRule?
        /// Whether the rule is as broad as a fallback: at the limit it takes the room of the spare.
        let isBroad: Bool
        /// The number of leases, plus one for the table if the rule is a fallback in use.
        var users: Int
        var standing = Standing.absent
        var waiters: [Waiter] = []
    }

    /// The rules with the same fallback.
    private struct Group {
        var count = 0
        /// The number of rules that the bus holds.
        var activeCount = 0
        /// Present while the fallback replaces the rules, or is requested for that. The table is a user of it then.
        var standIn: StandIn?
    }

    private struct StandIn {
        /// The number of rules of the group that the bus held when it reached its limit.
        var limit: Int
        /// Whether the rules are requested again, to be in force before the fallback ends.
        var isEnding = false
    }

    private enum Spare {
        case none
        case held(ticket: UInt64)
        /// The bus refused it, so it has no room for a fallback either. Requested again on the next connection.
        case refused
    }

    /// By handle; `nil` for free handles.
    private var entries: [Entry?] = []
    private var freeHandles: [Int] = []
    private var handles: [MatchRule: Int] = [:]
    private var nextTicket: UInt64 = 1
    /// By fallback.
    private var groups: [MatchRule: Group] = [:]
    private var spare = Spare.none

    static let spareThreshold = 8
    /// Matches nothing: no bus assigns the unique name `:0.0`.
    static let spareRule = MatchRule(signalFrom: ":0.0", member: "Spare")

    /// The number of rules in use.
    var count: Int { handles.count }
    /// The number of rules that a fallback replaces.
    var coveredCount: Int { entries.count { if case .covered = $0?.standing { true } else { false } } }
    /// The number of rules that are not in force: neither the bus nor a fallback in force covers them.
    var notInForceCount: Int {
        entries.count { entry in
            guard let entry else { return false }
            return !isInForce(entry)
        }
    }

    /// Whether a request for a rule is pending. A late request does not count.
    var hasRequests: Bool {
        entries.contains { if case .requested(_, isLate: false) = $0?.standing { true } else { false } }
    }

    private func isInForce(_ entry: Entry) -> Bool {
        switch entry.standing {
        case .active: true
        case .covered, .requested: entry.fallback.map(isInForce(asFallback:)) ?? false
        case .absent: false
        }
    }

    /// Whether the rule is a fallback in use.
    private func isStandIn(_ rule: MatchRule) -> Bool { groups[rule]?.standIn != nil }

    private var standIns: [MatchRule] { groups.compactMap { $0.value.standIn == nil ? nil : $0.key } }

    /// Whether the rule is a fallback in use that the bus holds.
    private func isInForce(asFallback rule: MatchRule) -> Bool {
        isStandIn(rule) && standing(of: rule) == .active
    }

    // MARK: Users

    /// Adds a user of `rule` until ``release(_:)``. `fallback` is the broader rule; `rule` itself marks a broad rule.
    /// Returns the rule's handle, valid while it has a user; the outcome of the request; the actions to take.
    mutating func retain(
        _ rule: MatchRule,
        fallback: MatchRule?,
        isConnected: Bool = true,
        waiter: @escaping Waiter
    ) -> (handle: Int, Retention, [Action]) {
        let handle =
            handles[rule] ?? insert(rule, fallback: fallback == rule ? nil : fallback, isBroad: fallback == rule)
        entries[handle]?.users += 1
        guard isConnected else { return (handle, .failed(.disconnected("add the match rule \(rule)")), []) }
        switch entries[handle]?.standing {
        case .active: return (handle, .inForce, [])
        case .requested where coverage(of: handle) == .active: return (handle, .inForce, [])
        case .requested(_, isLate: true): return (handle, .failed(.noAnswer("add the match rule \(rule)")), [])
        case .requested:
            entries[handle]?.waiters.append(waiter)
            return (handle, .pending, [])
        case .covered, .absent, nil:
            switch coverage(of: handle) {
            case .active where isEnding(fallbackOf: handle): return (handle, .inForce, request(handle))
            case .active:
                set(handle, .covered)
                return (handle, .inForce, [])
            case .requested:
                set(handle, .covered)
                entries[handle]?.waiters.append(waiter)
                return (handle, .pending, [])
            case .none:
                entries[handle]?.waiters.append(waiter)
                return (handle, .pending, request(handle))
            }
        }
    }

    mutating func release(_ handle: Int) -> [Action] {
        guard entries.indices.contains(handle), let entry = entries[handle] else { return [] }
        guard entry.users <= 1 else {
            entries[handle]?.users -= 1
            return []
        }
        remove(handle)
        // The response to a pending request finds no entry, and removes the rule from the bus.
        let removal: [Action] = if case .active = entry.standing { [.remove(entry.rule)] } else { [] }
        return removal + (entry.fallback.map { endStandIn(of: $0) } ?? [])
    }

    private mutating func insert(_ rule: MatchRule, fallback: MatchRule?, isBroad: Bool) -> Int {
        let entry = Entry(rule: rule, fallback: fallback, isBroad: isBroad, users: 0)
        if let fallback { groups[fallback, default: Group()].count += 1 }
        let handle: Int
        if let free = freeHandles.popLast() {
            entries[free] = entry
            handle = free
        } else {
            entries.append(entry)
            handle = entries.count - 1
        }
        handles[rule] = handle
        return handle
    }

    private mutating func remove(_ handle: Int) {
        set(handle, .absent)
        guard let entry = entries[handle] else { return }
        if let fallback = entry.fallback {
            groups[fallback]?.count -= 1
            if groups[fallback]?.count == 0, groups[fallback]?.standIn == nil { groups[fallback] = nil }
        }
        handles[entry.rule] = nil
        entries[handle] = nil
        freeHandles.append(handle)
    }

    private mutating func set(_ handle: Int, _ standing: Standing) {
        guard let entry = entries[handle] else { return }
        if let fallback = entry.fallback {
            if case .active = entry.standing { groups[fallback]?.activeCount -= 1 }
            if case .active = standing { groups[fallback]?.activeCount += 1 }
        }
        entries[handle]?.standing = standing
    }

    // MARK: Responses of the bus

    /// Handles the bus's response to an ``Action/add(_:_:)``; `nil` is success. After ``DBusError/Code/timedOut`` the
    /// waiters are told, and a late response still counts.
    mutating func answered(_ rule: MatchRule, _ request: Request, error: DBusError?) -> Answer {
        if request.isForSpare { return spareAnswered(request, error) }
        let handle = request.handle
        guard entries.indices.contains(handle), case .requested(request.ticket, _) = entries[handle]?.standing else {
            // The rule is not needed any more. If the bus granted it, it is removed again.
            return Answer(actions: error == nil ? [.remove(rule)] : [])
        }
        guard let error else { return granted(rule, handle) }
        if error.code == .timedOut {
            set(handle, .requested(ticket: request.ticket, isLate: true))
            return Answer(waiters: takeWaiters(of: handle) + takeWaiters(coveredBy: rule), error: error)
        }
        // An error without a name comes from this process, and is not the bus's limit of rules.
        if error.code == .limitsExceeded, error.name != nil {
            if let fallback = entries[handle]?.fallback {
                let actions = keepStandIn(of: fallback)
                var answer = cover(handle, by: fallback)
                answer.actions += actions
                return answer
            }
            if entries[handle]?.isBroad == true, isSpareHeld {
                return Answer(actions: giveUpSpare() + self.request(handle))
            }
        }
        return refuse(handle, error)
    }

    private mutating func granted(_ rule: MatchRule, _ handle: Int) -> Answer {
        set(handle, .active)
        var answer = Answer(waiters: takeWaiters(of: handle) + takeWaiters(coveredBy: rule))
        if isStandIn(rule) { answer.actions += giveBack(coveredBy: rule) + endStandIn(of: rule) }
        if let fallback = entries[handle]?.fallback, isInForce(asFallback: fallback) {
            // The last missing rule while the fallback ends, perhaps. Otherwise the request is older than the fallback.
            answer.actions += isEnding(fallbackOf: handle) ? endStandIn(of: fallback) : giveBack(handle)
        }
        return answer
    }

    private mutating func spareAnswered(_ request: Request, _ error: DBusError?) -> Answer {
        // A late request may still be granted. The spare is removed either way.
        if let error, error.code != .timedOut, case .held(request.ticket) = spare { spare = .refused }
        return Answer()
    }

    private var isSpareHeld: Bool { if case .held = spare { true } else { false } }

    /// Lets the fallback replace the rule, and requests the fallback if needed.
    private mutating func cover(_ handle: Int, by fallback: MatchRule) -> Answer {
        set(handle, .covered)
        let broad = handles[fallback] ?? insert(fallback, fallback: nil, isBroad: true)
        if let group = groups[fallback], group.standIn == nil {
            entries[broad]?.users += 1
            groups[fallback]?.standIn = StandIn(limit: group.activeCount)
        }
        switch entries[broad]?.standing {
        case .active: return Answer(waiters: takeWaiters(of: handle), actions: giveBack(coveredBy: fallback))
        case .requested(_, isLate: true):
            return Answer(waiters: takeWaiters(of: handle), error: .noAnswer("add the match rule \(fallback)"))
        case .requested: return Answer()
        case .covered, .absent, nil: return Answer(actions: giveUpSpare() + request(broad))
        }
    }

    private mutating func refuse(_ handle: Int, _ error: DBusError) -> Answer {
        set(handle, .absent)
        var waiters = takeWaiters(of: handle)
        if let rule = entries[handle]?.rule, isStandIn(rule) {
            waiters += takeWaiters(coveredBy: rule)
            uncover(rule)
            dropUse(byTableOf: rule)
        }
        return Answer(waiters: waiters, error: error)
    }

    private mutating func takeWaiters(of handle: Int) -> [Waiter] {
        guard let waiters = entries[handle]?.waiters, !waiters.isEmpty else { return [] }
        entries[handle]?.waiters = []
        return waiters
    }

    private mutating func takeWaiters(coveredBy fallback: MatchRule) -> [Waiter] {
        guard isStandIn(fallback) else { return [] }
        return covered(by: fallback).flatMap { takeWaiters(of: $0) }
    }

    private func covered(by fallback: MatchRule) -> [Int] {
        entries.indices.filter { index in
            guard let entry = entries[index], entry.fallback == fallback, case .covered = entry.standing else {
                return false
            }
            return true
        }
    }

    private mutating func uncover(_ fallback: MatchRule) {
        for handle in covered(by: fallback) { set(handle, .absent) }
    }

    /// Ends the table's use of a fallback.
    private mutating func dropUse(byTableOf fallback: MatchRule) {
        groups[fallback]?.standIn = nil
        if groups[fallback]?.count == 0 { groups[fallback] = nil }
        guard let handle = handles[fallback] else { return }
        entries[handle]?.users -= 1
        if let users = entries[handle]?.users, users <= 0 { remove(handle) }
    }

    // MARK: Rules that a fallback replaces

    /// Removes a rule from the bus if a fallback in force replaces it.
    private mutating func giveBack(_ handle: Int) -> [Action] {
        guard let entry = entries[handle], case .active = entry.standing else { return [] }
        set(handle, .covered)
        return [.remove(entry.rule)]
    }

    private mutating func giveBack(coveredBy fallback: MatchRule) -> [Action] {
        guard let group = groups[fallback], group.activeCount > 0 else { return [] }
        return entries.indices.flatMap { entries[$0]?.fallback == fallback ? giveBack($0) : [] }
    }

    private func isEnding(fallbackOf handle: Int) -> Bool {
        entries[handle]?.fallback.flatMap { groups[$0]?.standIn?.isEnding } ?? false
    }

    /// Requests the rules of a fallback again once they are few enough, and removes it once all are in force.
    private mutating func endStandIn(of fallback: MatchRule) -> [Action] {
        guard let group = groups[fallback], let standIn = group.standIn, isInForce(asFallback: fallback) else {
            return []
        }
        var actions: [Action] = []
        if !standIn.isEnding {
            // Half, so that a count that goes up and down by one does not change the rules each time.
            guard group.count <= standIn.limit / 2 else { return [] }
            groups[fallback]?.standIn?.isEnding = true
            for handle in covered(by: fallback) { actions += request(handle) }
        }
        guard group.activeCount == group.count else { return actions }
        dropUse(byTableOf: fallback)
        // The bus has room again.
        if case .refused = spare { spare = .none }
        if handles[fallback] == nil { actions.append(.remove(fallback)) }
        return actions
    }

    /// The bus grants fewer rules than are in use, so the fallback stays.
    private mutating func keepStandIn(of fallback: MatchRule) -> [Action] {
        guard let group = groups[fallback], group.standIn?.isEnding == true else { return [] }
        groups[fallback]?.standIn = StandIn(limit: group.activeCount)
        return giveBack(coveredBy: fallback)
    }

    // MARK: Losing and finding the bus

    /// The bus holds no rules any more. Each pending request fails separately. Returns the waiters for a fallback,
    /// which the caller tells: the pending request is for another rule than theirs.
    mutating func lost() -> [Waiter] {
        var waiters: [Waiter] = []
        for fallback in standIns { waiters += takeWaiters(coveredBy: fallback) }
        forgetBus()
        return waiters
    }

    /// Requests every rule on the new connection. Waiters keep waiting.
    mutating func reconnected() -> [Action] {
        forgetBus()
        return entries.indices.flatMap { entries[$0] == nil ? [] : request($0) }
    }

    private mutating func forgetBus() {
        for fallback in standIns {
            uncover(fallback)
            dropUse(byTableOf: fallback)
        }
        spare = .none
        for handle in entries.indices {
            if case .active = entries[handle]?.standing { set(handle, .absent) }
        }
    }

    // MARK: Requests

    private enum Coverage { case none, requested, active }

    /// Whether a fallback in use replaces the rule, or is requested for that.
    private func coverage(of handle: Int) -> Coverage {
        guard let fallback = entries[handle]?.fallback, isStandIn(fallback) else { return .none }
        return standing(of: fallback)
    }

    private func standing(of rule: MatchRule) -> Coverage {
        switch handles[rule].flatMap({ entries[$0]?.standing }) {
        case .active: .active
        case .requested(_, isLate: false): .requested
        case .requested, .covered, .absent, nil: .none
        }
    }

    private mutating func request(_ handle: Int) -> [Action] {
        guard let rule = entries[handle]?.rule else { return [] }
        let request = Request(handle: handle, ticket: nextTicket)
        nextTicket += 1
        set(handle, .requested(ticket: request.ticket, isLate: false))
        return spareIfDue() + [.add(rule, request)]
    }

    private mutating func giveUpSpare() -> [Action] {
        guard isSpareHeld else { return [] }
        spare = .none
        return [.remove(Self.spareRule)]
    }

    private mutating func spareIfDue() -> [Action] {
        guard case .none = spare, handles.count >= Self.spareThreshold, standIns.isEmpty else { return [] }
        let ticket = nextTicket
        nextTicket += 1
        spare = .held(ticket: ticket)
        return [.add(Self.spareRule, Request(handle: Request.spareHandle, ticket: ticket))]
    }
}

/// A match rule: it decides which messages the bus sends to this connection.
///
/// Two rules are equal if the bytes of their texts are equal. Equal rules are shared (see
/// ``DBusConnection/addMatch(_:fallback:timeout:)``).
public struct MatchRule: Sendable, Hashable, CustomStringConvertible {
    /// The rule in the bus's syntax.
    public let description: String

    /// Creates a rule for signals; a part that is `nil` matches everything.
    ///
    /// - Parameters:
    ///   - sender: a bus name; the bus compares with the sender's unique name or the owner of a well-known name.
    ///   - path: the object path.
    ///   - interface: the interface.
    ///   - member: the signal's name.
    ///   - argument0: the first argument, a string.
    ///   - argument2: the third argument, a string.
    public init(
        signalFrom sender: String? = nil,
        path: String? = nil,
        interface: String? = nil,
        member: String? = nil,
        argument0: String? = nil,
        argument2: String? = nil
    ) {
        // One string without intermediate ones: a registration of ten thousand names makes ten thousand rules.
        var rule = "type='signal'"
        rule.reserveCapacity(160)
        Self.append(",sender='", sender, to: &rule)
        Self.append(",path='", path, to: &rule)
        Self.append(",interface='", interface, to: &rule)
        Self.append(",member='", member, to: &rule)
        Self.append(",arg0='", argument0, to: &rule)
        Self.append(",arg2='", argument2, to: &rule)
        description = rule
    }

    /// Compares bytes, as the bus does: to Swift, the two spellings of é are one string.
    public static func == (one: MatchRule, other: MatchRule) -> Bool {
        one.description.utf8.elementsEqual(other.description.utf8)
    }

    /// Hashes the bytes.
    public func hash(into hasher: inout Hasher) {
        var text = description
        text.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
    }

    /// Inside apostrophes only an apostrophe needs escaping: it stands outside of them, behind a backslash.
    private static func append(_ key: String, _ value: String?, to rule: inout String) {
        guard let value else { return }
        rule += key
        if value.contains(byte: UInt8(ascii: "'")) {
            rule += value.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''")
        } else {
            rule += value
        }
        rule += "'"
    }
}
