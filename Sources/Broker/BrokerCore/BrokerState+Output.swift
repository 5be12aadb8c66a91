import Basics
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

/// The rows whose latest change is not on the disk yet, by the version of that change. A failed write changes nothing.
package struct UnsavedRows<Row: Hashable & Sendable>: Sendable, Equatable {
    private var versions: [Row: UInt64] = [:]
    private var version: UInt64 = 0
    /// The last version that the latest write contains.
    private var offered: UInt64 = 0

    package init() {}

    func contains(_ row: Row) -> Bool { versions[row] != nil }

    mutating func insert(_ row: Row) {
        version += 1
        versions[row] = version
    }

    mutating func remove(_ row: Row) { versions[row] = nil }

    /// Returns the rows for a write. One write is in progress at a time.
    package mutating func offer() -> some Collection<Row> {
        offered = version
        return versions.keys
    }

    /// Records that the latest write is on the disk.
    package mutating func saved() {
        if !versions.isEmpty { versions = versions.filter { $0.value > offered } }
    }

    /// The latest of the rows; `nil` if there is none.
    func max() -> Row? where Row: Comparable { versions.keys.max() }
}

// What the state gives to the outside: responses, entries of the log, and the changes to commit. The engine has the
// store itself.

// MARK: Responses

extension BrokerState {
    /// A response ends the wait of its request.
    mutating func reply(_ number: UInt64, _ response: Response) {
        facts.waiting[number] = nil
        effects.append(.reply(number, .success(response)))
    }

    /// Drops a request that its caller has given up.
    mutating func abandon(_ number: UInt64) {
        facts.waiting[number] = nil
        effects.append(.reply(number, .failure(.requestAbandoned)))
    }

    mutating func refuse(_ request: Request, _ refusal: Refusal) {
        facts.waiting[request.number] = nil
        effects.append(.reply(request.number, .failure(refusal)))
        let entry = connected[request.connection]
        let app =
            switch request.call {
            case .join, .leave: "enrolment"
            case .forgetAccount: "administrator"
            case let call where call.right != nil: "administrator"
            case .overdue, .enforced: "enforcement"
            case .providerEvents: "the organisation's provider"
            default:
                entry?.apps[request.claimed]?.app
                    ?? "\(request.claimed?.printable(200) ?? "an app without a name") (not eligible)"
            }
        let user = entry?.caller.user ?? .max
        apply(logQuota.refused(refusal, method: request.method, app: app, user: user, facts))
    }

    /// Sends the response or the refusal, unless the request waits.
    mutating func respond(to request: Request, _ body: (inout BrokerState) throws(Refusal) -> Response?) {
        do throws(Refusal) {
            if let response = try body(&self) { reply(request.number, response) }
        } catch {
            refuse(request, error)
        }
    }

    /// - Parameter change: The change that has to be committed first; `nil` means all changes up to now.
    mutating func wait(
        _ request: Request,
        until: Duration? = nil,
        for reason: WaitingRequest.Reason,
        change: UInt64? = nil
    ) {
        let change = change ?? disk.changes
        facts.waiting[request.number] = WaitingRequest(request: request, until: until, reason: reason, change: change)
        if case .stored = reason { urge() }
    }
}

// MARK: The log and the disk

extension BrokerState {
    static let diskPause = Duration.seconds(1)
    /// The limits of the log while the disk fails: of all entries, and of refusals, which callers can cause without
    /// limit.
    static let (longestLog, mostRefusals) = (5000, 1250)
    /// How many complete and incomplete rounds are kept, and for how long (in seconds) the account names of incomplete
    /// rounds are kept.
    static let (keptRounds, keptDebts) = (100, 200)
    static let keptNames: TimeInterval = 30 * 24 * 3600

    /// Records a change that has to be committed, and returns its number.
    @discardableResult
    mutating func needsDisk(within delay: Duration) -> UInt64 {
        facts.disk.changes += 1
        let due = now.uptime + delay
        // After a failure the pause is kept. Until then, requests that need the disk are refused.
        if disk.problem == nil || disk.due == nil { facts.disk.due = min(disk.due ?? due, due) }
        return disk.changes
    }

    /// Counts a change that has to be committed at once.
    mutating func change() {
        needsDisk(within: .zero)
        touch()
    }

    mutating func touch() {
        revision += 1
        isTouched = true
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

    mutating func enterRepeatable(
        _ event: AuditEntry.Event,
        _ kind: String,
        _ session: UInt64,
        _ participant: Participant,
        detail: String? = nil
    ) {
        apply(logQuota.repeated(event, kind, session, participant, detail: detail, facts))
    }

    /// Shortens a log that waits for the disk, first by the oldest refusals beyond their own limit.
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

    var isWriteDue: Bool { disk.writing == nil && disk.due.map { $0 <= now.uptime } ?? false }

    mutating func writeIfDue() {
        guard isWriteDue else { return }
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
    }

    package var isOnDisk: Bool { disk.isIdle }

    package var isReadyToEnd: Bool { provider.isEnding && isOnDisk }
}
