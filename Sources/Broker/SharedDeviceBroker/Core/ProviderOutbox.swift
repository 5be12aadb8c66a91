package import FoundationEssentials
package import Identity
import Logging

/// What the provider is still to be told: that sessions are over here. Pure: the caller brings the time, and tells the provider.
///
/// One is told at a time. A provider that hangs holds up the others of this list and nothing else.
package struct ProviderOutbox: Sendable {
    /// A session's end that the provider does not know of.
    package struct Entry: Sendable, Equatable {
        package internal(set) var record: ProviderRecord
        /// Whether the tokens alone are to be revoked: the person has signed in anew, and what they have at the provider goes on.
        package let keepsSession: Bool
        /// Since when, by the wall clock, because a restart ends no waiting.
        package let addedAt: Date
        /// How often the provider was asked, to ``ProviderOutbox/mostTries``.
        package internal(set) var tries: Int
        /// When it is asked next.
        var next: Duration
        /// Whether a renewal is under way with this record, whose answer may bring another one.
        var isHeld = false

        package init(
            record: ProviderRecord,
            keepsSession: Bool = false,
            addedAt: Date,
            tries: Int = 0,
            next: Duration
        ) {
            self.record = record
            self.keepsSession = keepsSession
            self.addedAt = addedAt
            self.tries = min(max(tries, 0), ProviderOutbox.mostTries)
            self.next = next
        }
    }

    /// What became of an entry.
    package enum Outcome: Sendable, Equatable {
        case done
        case again(after: Duration)
        /// It is given up.
        case lost
    }

    /// The pauses before the tries; the last one counts for all later ones.
    static let pauses: [Duration] = [.zero, .seconds(5), .seconds(30), .seconds(120), .seconds(600), .seconds(3600)]
    /// How far tries are counted: a damaged disk may have any number.
    static let mostTries = 1_000_000
    /// How long the provider is asked, in seconds.
    static let patience: TimeInterval = 7 * 24 * 3600
    /// How many entries are kept. Over that, the oldest is given up.
    static let capacity = 100

    /// By their numbers, also those that an earlier run has left.
    package private(set) var entries: [UInt64: Entry] = [:]
    /// The numbers of those that have changed since the disk had them.
    var changes: Set<UInt64> = []
    /// The one that the provider is being told.
    private(set) var underWay: UInt64?

    /// Adds an end.
    ///
    /// - Parameters:
    ///   - keepsSession: whether the tokens alone are to be revoked.
    ///   - isHeld: whether it waits for ``release(_:with:)``.
    /// - Returns: its number; and the number of the one that was given up for it.
    mutating func add(
        _ record: ProviderRecord,
        keepsSession: Bool = false,
        isHeld: Bool = false,
        at now: Moment
    ) -> (UInt64, dropped: UInt64?) {
        var dropped: UInt64?
        if entries.count >= Self.capacity, let oldest = entries.keys.filter({ $0 != underWay }).min() {
            remove(oldest)
            dropped = oldest
        }
        // Numbers that were used are not used again: the disk may have an entry's removal still to come.
        let number = max(entries.keys.max() ?? 0, changes.max() ?? 0, underWay ?? 0) + 1
        var entry = Entry(record: record, keepsSession: keepsSession, addedAt: now.wall, next: now.uptime)
        entry.isHeld = isHeld
        entries[number] = entry
        changes.insert(number)
        return (number, dropped)
    }

    /// The renewal that held the entry has ended.
    ///
    /// - Parameter record: what takes the record's place, if there is something.
    mutating func release(_ number: UInt64, with record: ProviderRecord?) {
        guard entries[number] != nil else { return }
        entries[number]?.isHeld = false
        guard let record else { return }
        entries[number]?.record = record
        changes.insert(number)
    }

    /// When the next one is due; `nil` where nothing is to be told, or somebody is being told.
    var next: Duration? { underWay == nil ? entries.values.filter { !$0.isHeld }.map(\.next).min() : nil }

    /// Takes the next one that is due. It is under way until ``ended(_:mayWork:at:)``.
    mutating func takeDue(at now: Duration) -> (number: UInt64, entry: Entry)? {
        let due = entries.filter { !$0.value.isHeld && $0.value.next <= now }
        guard underWay == nil, let (number, entry) = due.min(by: { ($0.value.next, $0.key) < ($1.value.next, $1.key) })
        else { return nil }
        underWay = number
        return (number, entry)
    }

    /// The provider has answered, or did not.
    ///
    /// - Parameter mayWork: whether a later try may help; `nil`: the provider knows.
    mutating func ended(_ number: UInt64, mayWork: Bool?, at now: Moment) -> Outcome? {
        guard underWay == number else { return nil }
        underWay = nil
        guard var entry = entries[number] else { return nil }
        entry.tries = min(entry.tries + 1, Self.mostTries)
        guard mayWork == true, now.wall.timeIntervalSince(entry.addedAt) < Self.patience else {
            remove(number)
            return mayWork == nil ? .done : .lost
        }
        let pause = Self.pauses[min(entry.tries, Self.pauses.count - 1)]
        entry.next = now.uptime + pause
        entries[number] = entry
        changes.insert(number)
        return .again(after: pause)
    }

    /// There is a reason to believe that the provider can be told: nobody waits longer than until then.
    mutating func hurry(to time: Duration) {
        for (number, entry) in entries where entry.next > time { entries[number]?.next = time }
    }

    /// Whether tokens of this person's are to be revoked, or may have been, while their session goes on.
    func revokes(_ person: ProviderRecord.Person) -> Bool {
        entries.values.contains { $0.keepsSession && $0.record.person == person }
    }

    private mutating func remove(_ number: UInt64) {
        entries[number] = nil
        changes.insert(number)
    }
}

extension BrokerState {
    /// Has the provider told that a session is over.
    ///
    /// - Parameters:
    ///   - keepsSession: whether only its tokens are to be revoked.
    ///   - isRenewed: whether a renewal of its record is under way.
    mutating func tellLater(_ record: ProviderRecord, keepsSession: Bool = false, isRenewed: Bool = false) {
        let (number, dropped) = provider.outbox.add(record, keepsSession: keepsSession, isHeld: isRenewed, at: now)
        if isRenewed { provider.renewal?.held = number }
        if let dropped { noteEnd(dropped, .lost, "too many ends wait") }
        needsDisk(within: .zero)
    }

    mutating func tellProvider() {
        guard provider.isReachable, let (number, entry) = provider.outbox.takeDue(at: now.uptime) else { return }
        effects.append(.tellSessionEnd(number, entry.record, keepsSession: entry.keepsSession))
    }

    /// The provider was told, or not.
    mutating func sessionEndTold(_ number: UInt64, _ error: IdentityError?) {
        let entry = provider.outbox.entries[number]
        let mayWork = error.map { $0.code == .providerUnavailable || $0.code == .busy }
        guard let outcome = provider.outbox.ended(number, mayWork: mayWork, at: now) else { return }
        if outcome == .done || outcome == .lost, let entry, entry.keepsSession { doubtRecord(of: entry.record.person) }
        needsDisk(within: Self.lazyWrite)
        noteEnd(number, outcome, error?.description ?? "")
    }

    private mutating func noteEnd(_ number: UInt64, _ outcome: ProviderOutbox.Outcome, _ reason: String) {
        let (level, text): (Logger.Level, String) =
            switch outcome {
            case .done: (.notice, "the provider knows that a session is over")
            case .again(let pause): (.notice, "the provider is told again in \(pause.components.seconds) s")
            case .lost: (.warning, "the provider does not know that a session is over, and is not told again")
            }
        let details = ["number": "\(number)", "reason": reason.forLog(500)].filter { !$0.value.isEmpty }
        effects.append(.note(level, text, details))
    }
}
