import Basics
package import FoundationEssentials
package import Identity
import Logging

/// The ends of sessions that the provider still has to be told. Only one is in flight at a time.
package struct ProviderOutbox: Sendable {
    /// The end of a session that the provider does not know of.
    package struct Entry: Sendable, Equatable {
        package internal(set) var record: ProviderRecord
        /// Whether only the tokens are to be revoked: the session at the provider continues.
        package let keepsSession: Bool
        /// When the entry was added. By the wall clock, because the waiting continues across restarts.
        package let addedAt: Date
        /// The number of attempts to tell the provider, at most ``ProviderOutbox/mostTries``.
        package internal(set) var tries: Int
        var next: Duration
        /// Whether a renewal is in flight with this record. Its response may contain a newer record.
        var isHeld = false

        func mayBeTold(_ isCommitted: Bool) -> Bool { !isHeld && (isCommitted || !keepsSession) }

        package init(record: ProviderRecord, keepsSession: Bool = false, addedAt: Date, tries: Int = 0, next: Duration)
        {
            (self.record, self.keepsSession, self.addedAt) = (record, keepsSession, addedAt)
            (self.tries, self.next) = (min(max(tries, 0), ProviderOutbox.mostTries), next)
        }
    }

    package enum Outcome: Sendable, Equatable {
        case done
        case again(after: Duration)
        case lost
    }

    /// The pauses before each attempt. The last one applies to all later attempts.
    static let pauses: [Duration] = [.zero, .seconds(5), .seconds(30), .seconds(120), .seconds(600), .seconds(3600)]
    /// The limit of the count. A damaged disk may contain any number.
    static let mostTries = 1_000_000
    /// How long the attempts continue, in seconds.
    static let patience: TimeInterval = 7 * 24 * 3600
    /// How many entries are kept. Beyond that, the oldest is given up.
    static let capacity = 100

    /// The entries by number, including entries of an earlier run.
    package private(set) var entries: [UInt64: Entry] = [:]
    /// The numbers of the entries with uncommitted changes.
    var unsaved = UnsavedRows<UInt64>()
    private(set) var underWay: UInt64?

    /// - Parameter isHeld: Whether the entry waits for ``release(_:with:)``.
    /// - Returns: The number of the entry, and the number of the entry that was given up for it.
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
        // Numbers are not reused: the removal of an entry may not be committed yet.
        let number = max(entries.keys.max() ?? 0, unsaved.max() ?? 0, underWay ?? 0) + 1
        var entry = Entry(record: record, keepsSession: keepsSession, addedAt: now.wall, next: now.uptime)
        entry.isHeld = isHeld
        entries[number] = entry
        unsaved.insert(number)
        return (number, dropped)
    }

    /// Releases an entry after the renewal with its record has ended, with the record that replaces it, if any.
    mutating func release(_ number: UInt64, with record: ProviderRecord?) {
        guard entries[number] != nil else { return }
        entries[number]?.isHeld = false
        guard let record else { return }
        entries[number]?.record = record
        unsaved.insert(number)
    }

    /// When the next entry is due; `nil` if there is none, or if one is in flight.
    ///
    /// - Parameter isCommitted: Whether the disk has the present record. Until then, a restart needs the replaced one.
    func next(isCommitted: Bool) -> Duration? {
        underWay == nil ? entries.values.filter { $0.mayBeTold(isCommitted) }.map(\.next).min() : nil
    }

    /// Takes the next due entry. It is in flight until ``ended(_:mayWork:at:)``.
    mutating func takeDue(isCommitted: Bool, at now: Duration) -> (number: UInt64, entry: Entry)? {
        let due = entries.filter { $0.value.mayBeTold(isCommitted) && $0.value.next <= now }
        guard underWay == nil, let (number, entry) = due.min(by: { ($0.value.next, $0.key) < ($1.value.next, $1.key) })
        else { return nil }
        underWay = number
        return (number, entry)
    }

    /// - Parameter mayWork: Whether a later attempt may succeed; `nil` if the provider knows of the end.
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
        unsaved.insert(number)
        return .again(after: pause)
    }

    mutating func hurry(to time: Duration) {
        for (number, entry) in entries where entry.next > time { entries[number]?.next = time }
    }

    /// Whether an entry revokes tokens of this person, whose session continues, or may have done so.
    func revokes(_ person: ProviderRecord.Person) -> Bool {
        entries.values.contains { $0.keepsSession && $0.record.person == person }
    }

    private mutating func remove(_ number: UInt64) {
        entries[number] = nil
        unsaved.insert(number)
    }
}
