import DeviceConfiguration
import FoundationEssentials
import Identity
import Logging
import SharedDevice

/// A part of the store besides the ledger and the outbox.
enum StoredRow: Sendable {
    case device
    case membership
    case provider
    case compliance
    /// The bytes of names that were removed from the rows, and of tokens.
    case erasure
}

// The changes to commit, and when. The engine has the store itself.
extension BrokerState {
    static let diskPause = Duration.seconds(1)
    /// The limits of the log while the disk fails: of all entries, and of refusals among them. Callers can cause
    /// refusals without limit.
    static let (longestLog, mostRefusals) = (5000, 1250)
    /// How many complete and incomplete rounds are kept, and for how long (in seconds) the account names of incomplete
    /// rounds are kept.
    static let (keptRounds, keptDebts) = (100, 200)
    static let keptNames: TimeInterval = 30 * 24 * 3600

    /// Records a change that has to be committed.
    ///
    /// - Returns: The number of the change.
    @discardableResult
    mutating func needsDisk(within delay: Duration) -> UInt64 {
        facts.disk.changes += 1
        let due = now.uptime + delay
        // After a failure the pause is kept. Until then, requests that need the disk are refused.
        if disk.problem == nil || disk.due == nil { facts.disk.due = min(disk.due ?? due, due) }
        return disk.changes
    }

    /// Starts the next write at once, because a request waits for all changes up to now.
    mutating func urge() {
        if disk.committed < disk.changes, disk.problem == nil {
            facts.disk.due = min(disk.due ?? now.uptime, now.uptime)
        }
        isTouched = true
    }

    mutating func enterLog(
        _ event: AuditEntry.Event,
        session: UInt64? = nil,
        participant: Participant? = nil,
        app: String? = nil,
        account: Account? = nil,
        detail: String? = nil
    ) {
        let entry = AuditEntry(
            event: event,
            at: now.wall,
            session: session,
            app: participant?.app ?? app,
            user: participant?.user,
            account: account?.identifier.lowercased(),
            accountName: account?.username,
            detail: detail
        )
        log.append(entry)
        log = Self.bounded(log)
        effects.append(.journal(entry))
        needsDisk(within: Facts.Disk.lazyWrite)
    }

    /// Shortens a log that waits for the disk. If it is too long, it first loses the oldest refusals beyond their own
    /// limit, and then the oldest entries.
    static func bounded(_ log: [AuditEntry]) -> [AuditEntry] {
        guard log.count > longestLog else { return log }
        let refusals = log.count { $0.event == .refused }
        var surplus = min(log.count - longestLog, max(0, refusals - mostRefusals))
        let kept = log.filter { entry in
            guard surplus > 0, entry.event == .refused else { return true }
            surplus -= 1
            return false
        }
        return kept.suffix(longestLog)
    }

    mutating func prune() {
        facts.ledger.prune(keeping: Self.keptRounds, namesSince: now.wall.addingTimeInterval(-Self.keptNames))
        facts.ledger.fold(keeping: Self.keptDebts)
    }

    mutating func writeIfDue() {
        guard disk.writing == nil, let due = disk.due, due <= now.uptime else { return }
        var batch = Batch(number: disk.changes)
        for row in unsaved.offer() {
            switch row {
            case .device: batch.device = pending?.next ?? device
            case .membership: batch.membership = .some(membership)
            case .provider:
                batch.provider = .some(provider.row(facts))
                batch.providerOwner = pending?.next ?? device
            case .compliance: batch.compliance = facts.compliance
            case .erasure: batch.erases = true
            }
        }
        for number in provider.outbox.unsaved.offer() { batch.outbox[number] = .some(provider.outbox.entries[number]) }
        batch.add(&facts.ledger)
        if batch.sessions.values.contains(where: { $0?.account == nil }) { batch.erases = true }
        (batch.log, log) = (log, [])
        (facts.disk.writing, facts.disk.due) = (batch, nil)
        effects.append(.commit(batch))
    }

    mutating func committed(_ number: UInt64) {
        facts.disk.committed = max(disk.committed, number)
        if disk.writing?.log.isEmpty == false { facts.disk.logWrites += 1 }
        facts.disk.writing = nil
        facts.disk.problem = nil
        unsaved.saved()
        facts.ledger.unsaved.saved()
        provider.outbox.unsaved.saved()
        isTouched = true
    }

    mutating func commitFailed(_ batch: Batch, _ problem: String) {
        facts.disk.writing = nil
        isTouched = true
        log = Self.bounded(batch.log + log)
        if disk.problem == nil { effects.append(.note(.error, "not on the disk yet", ["reason": problem])) }
        facts.disk.problem = problem
        facts.disk.due = now.uptime + Self.diskPause
        if let pending, pending.change <= batch.number { dropPendingSignIn(because: .failed(problem)) }
    }

    package var isOnDisk: Bool { disk.isIdle }

    package var isReadyToEnd: Bool { provider.isEnding && isOnDisk }
}
