import DeviceConfiguration
import FoundationEssentials
import Identity
import Logging
import SharedDevice

// What is to be on the disk, and when. The store itself is the engine's.
extension BrokerState {
    struct Disk: Sendable {
        /// The number of the latest change.
        var changes: UInt64 = 0
        /// All changes up to this number are on the disk.
        var committed: UInt64 = 0
        /// What is being written; `nil` where nothing is.
        var writing: Batch?
        /// When the next write begins at the latest; `nil` where nothing is to be written.
        var due: Duration?
        /// How many writes that have entries of the log have ended well.
        var logWrites: UInt64 = 0
        /// Why the last write failed; `nil` if it did not.
        var problem: String?
    }

    /// The pause after a write that failed.
    static let diskPause = Duration.seconds(1)
    /// How long a change may stay in memory that a crash may lose.
    static let lazyWrite = Duration.milliseconds(200)
    /// How many entries of the log wait for a disk that fails, and how many refusals among them: callers bring these about without end.
    static let (longestLog, mostRefusals) = (5000, 1250)
    /// How many complete rounds are kept for later questions, how many that are not complete, and how long names of accounts whose data an app never deleted.
    static let (keptRounds, keptDebts) = (100, 200)
    static let keptNames: TimeInterval = 30 * 24 * 3600

    /// Something has changed that the disk is to have.
    ///
    /// - Returns: the change's number.
    @discardableResult
    mutating func needsDisk(within delay: Duration) -> UInt64 {
        disk.changes += 1
        let due = now.uptime + delay
        // After a failure the pause stays; whoever needs the disk is refused meanwhile.
        if disk.problem == nil || disk.due == nil { disk.due = min(disk.due ?? due, due) }
        return disk.changes
    }

    /// Somebody waits for the disk to have all changes up to now.
    mutating func urge() {
        if disk.committed < disk.changes, disk.problem == nil { disk.due = min(disk.due ?? now.uptime, now.uptime) }
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
        needsDisk(within: Self.lazyWrite)
    }

    /// What is kept of a log that waits for the disk. Beyond its limit it first loses the oldest of those refusals that exceed their share, and then the
    /// oldest entries.
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
        ledger.prune(keeping: Self.keptRounds, namesSince: now.wall.addingTimeInterval(-Self.keptNames))
        ledger.fold(keeping: Self.keptDebts)
        if repeatedEntries.count > ledger.sessions.count {
            repeatedEntries = repeatedEntries.filter { ledger.sessions[$0.key] != nil }
        }
    }

    mutating func writeIfDue() {
        guard disk.writing == nil, let due = disk.due, due <= now.uptime else { return }
        var batch = Batch(number: disk.changes)
        if isDeviceDirty { batch.device = pending?.next ?? device }
        if isMembershipDirty { batch.membership = .some(membership) }
        if isProviderDirty {
            batch.provider = .some(providerRow)
            batch.providerOwner = pending?.next ?? device
        }
        if isComplianceDirty { batch.compliance = compliance }
        for number in provider.outbox.changes { batch.outbox[number] = .some(provider.outbox.entries[number]) }
        provider.outbox.changes = []
        let changes = ledger.takeChanges()
        for number in changes.sessions { batch.sessions[number] = .some(ledger.sessions[number]) }
        for (number, participants) in changes.parts {
            for participant in participants {
                batch.parts[number, default: [:]][participant] = .some(ledger.parts[number]?[participant])
            }
        }
        for participant in changes.claims { batch.claims[participant] = .some(ledger.claims[participant]) }
        batch.log = log
        batch.erases = erases || batch.sessions.values.contains { $0?.account == nil }
        (isDeviceDirty, isMembershipDirty, isProviderDirty, erases, log) = (false, false, false, false, [])
        isComplianceDirty = false
        (disk.writing, disk.due) = (batch, nil)
        effects.append(.commit(batch))
    }

    mutating func commitFailed(_ batch: Batch, _ problem: String) {
        disk.writing = nil
        isTouched = true
        isDeviceDirty = isDeviceDirty || batch.device != nil
        isMembershipDirty = isMembershipDirty || batch.membership != nil
        isProviderDirty = isProviderDirty || batch.provider != nil
        isComplianceDirty = isComplianceDirty || batch.compliance != nil
        provider.outbox.changes.formUnion(batch.outbox.keys)
        erases = erases || batch.erases
        ledger.putBack(batch.changes)
        log = Self.bounded(batch.log + log)
        if disk.problem == nil { effects.append(.note(.error, "not on the disk yet", ["reason": problem])) }
        disk.problem = problem
        disk.due = now.uptime + Self.diskPause
        if let pending, pending.change <= batch.number { dropPendingSignIn(because: .failed(problem)) }
    }

    /// Whether the disk has it who is signed in.
    var isSessionOnDisk: Bool { !isDeviceDirty && disk.writing?.device == nil }

    // MARK: Keys

    /// What is wrong with keys, and what helps; `nil` where all is in order.
    var keyProblem: String? {
        let problems = keyTroubles + [recordProblem].compactMap { $0 }
        return problems.isEmpty ? nil : problems.joined(separator: "; ")
    }

    static func recordProblem(_ reasons: [String]) -> String? {
        guard !reasons.isEmpty else { return nil }
        return "what is kept of the sign-in with the organisation's provider cannot be opened ("
            + Set(reasons).sorted().joined(separator: "; ")
            + "); start the broker with the key that it was sealed with (the credential token-key), or have the person sign in again"
    }

    /// Whether everything is on the disk.
    package var isOnDisk: Bool { disk.writing == nil && disk.due == nil }

    /// Whether the broker knows that it is about to end, and everything is on the disk.
    var isReadyToEnd: Bool { provider.isEnding && isOnDisk }
}
