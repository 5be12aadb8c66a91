package import FoundationEssentials
@_spi(Extensions) package import SharedDevice

/// An app as run by one user. Each user has separate data, so each pair owes its own cleanup.
package struct Participant: Sendable, Hashable, Comparable {
    package let app: String
    package let user: UInt32

    package init(app: String, user: UInt32) {
        (self.app, self.user) = (app, user)
    }

    package static func < (left: Participant, right: Participant) -> Bool {
        (left.app, left.user) < (right.app, right.user)
    }
}

/// Records which app of which user holds whose data, and which app has reported that the data is deleted (architecture,
/// D10). The caller passes the time, and writes the rows of ``unsaved`` to the disk.
///
/// An app is listed under a session before it receives the account. Only its own report, an administrator's waiver or
/// an enforced cleanup settles the entry; its end does not. If several processes received the account, all that still
/// run have to report.
package struct CleanupLedger: Sendable, Equatable {
    package struct Session: Sendable, Equatable {
        /// The account; `nil` once no app holds data of it, or once its name was deleted.
        package var account: Account?
        /// When the session began, by the wall clock.
        package var startedAt: Date
        /// When the session ended, by the wall clock; `nil` while it is open.
        package var endedAt: Date?
        /// When the session ended, by the monotonic clock.
        package var endedUptime: Duration?
        /// The state of the session's cleanup round; `nil` while the session is open.
        package var outcome: CleanupReport.Outcome?

        package init(account: Account?, startedAt: Date) { (self.account, self.startedAt) = (account, startedAt) }
    }

    /// One app's entry in a session.
    package struct Part: Sendable, Equatable {
        /// The progress of the cleanup; `nil` while the session is open.
        package var progress: CleanupReport.Progress?
        package var toldAt: Date?
        package var begunAt: Date?
        package var finishedAt: Date?
        package var detail: String?
        /// The connections that received the account and have not reported.
        package var connections: Set<String> = []
        /// Whether a process has reported that the data is deleted from the disk. The processes of ``connections``
        /// still have it in memory.
        package var isReported = false
        /// Identifies the state of the app's processes that a receipt refers to; 0 at first.
        ///
        /// A process that leaves the bus unreported may have stored something after another process's cleanup. Each
        /// such departure changes the mark, and after the first one each start of the broker too. A receipt counts only
        /// under the present mark.
        package var mark: UInt64 = 0
        /// The connections that have reported under this mark.
        package var reported: Set<String> = []

        package init(progress: CleanupReport.Progress? = nil, mark: UInt64 = 0) {
            (self.progress, self.mark) = (progress, mark)
        }

        package var isOwed: Bool { progress?.isSettled == false }
        /// Whether the cleanup is owed and not begun, or only some processes have reported it.
        var isIdle: Bool { progress == .owed || progress == .told || isReported }

        /// Merges another entry, whose processes this one then also waits for.
        mutating func take(_ other: Part) {
            connections.formUnion(other.connections)
            // Two different marks, neither of them 0, become a third one, so that a receipt in flight under either of
            // them does not count.
            if mark != other.mark { mark ^= other.mark }
            reported = []
            if other.progress?.isSettled != true { isReported = isReported && other.isReported }
        }
    }

    /// A new ``Part/mark``. It is random, because a counter value that was not committed would occur twice after a
    /// power cut. It has 53 bits, because JavaScript's numbers are exact only to that size.
    package static func newMark() -> UInt64 { .random(in: 1..<1 << 53) }

    /// The key of a row in the store.
    package enum Row: Sendable, Hashable {
        case session(UInt64)
        case part(UInt64, Participant)
        case claim(Participant)
    }

    package enum Effect: Sendable, Equatable {
        /// There is no such debt, it was settled before, or the report repeats what is known.
        case none
        /// Only the text of the report has changed.
        case detailed
        /// The app's progress has changed.
        case recorded
        /// The receipt does not count, because the mark has changed since its sender began.
        case refused
        /// The report has settled the last debt of the session.
        case completed
    }

    package private(set) var sessions: [UInt64: Session] = [:]
    package private(set) var parts: [UInt64: [Participant: Part]] = [:]
    /// Enforced cleanups. A claim holds even if the entries change before it ends.
    package private(set) var claims: [Participant: Claim] = [:]
    package var unsaved = UnsavedRows<Row>()
    /// The open sessions, and the sessions with debts.
    private(set) var unfinished: Set<UInt64> = []
    /// The entries by the connections that they list.
    private var listings: [String: Set<Listing>] = [:]

    private struct Listing: Hashable, Sendable {
        let session: UInt64
        let participant: Participant
    }

    package init() {}

    package init(
        sessions: [UInt64: Session],
        parts: [UInt64: [Participant: Part]],
        claims: [Participant: Claim] = [:]
    ) {
        (self.sessions, self.parts, self.claims) = (sessions, parts, claims)
        unfinished = Set(sessions.filter { $0.value.outcome != .complete }.keys)
        for (number, participants) in parts {
            for (participant, part) in participants { list(part, instead: nil, number, participant) }
        }
    }

    // MARK: Sessions

    package mutating func begin(_ number: UInt64, account: Account, at now: Moment) {
        setSession(number, Session(account: account, startedAt: now.wall))
    }

    /// Removes a session that never began.
    package mutating func remove(_ number: UInt64) {
        setSession(number, nil)
        for (participant, part) in parts[number] ?? [:] {
            list(nil, instead: part, number, participant)
            unsaved.remove(.part(number, participant))
        }
        parts[number] = nil
    }

    /// Ends the session. Every app that received its account now owes a cleanup.
    package mutating func end(_ number: UInt64, at now: Moment) {
        guard var session = sessions[number], session.outcome == nil else { return }
        session.endedAt = now.wall
        session.endedUptime = now.uptime
        session.outcome = .open
        setSession(number, session)
        for participant in (parts[number] ?? [:]).keys { change(number, participant) { $0.progress = .owed } }
        completeIfSettled(number)
    }

    /// Records that the app is about to receive the account of an open session on this connection, and returns whether
    /// that is a change.
    package mutating func hold(_ number: UInt64, by participant: Participant, on connection: String?) -> Bool {
        guard let session = sessions[number], session.outcome == nil else { return false }
        if let part = parts[number]?[participant], connection.map(part.connections.contains) ?? true { return false }
        change(number, participant) { part in if let connection { part.connections.insert(connection) } }
        return true
    }

    // MARK: Cleanups

    /// Records that a process has asked. If one has left the bus without a report, this may be the same process under
    /// another name, and has to report too.
    ///
    /// - Returns: Whether the change has to be committed.
    @discardableResult
    package mutating func ask(_ participant: Participant, on connection: String) -> Bool {
        var isNews = false
        for number in unfinished {
            guard let part = parts[number]?[participant], part.isOwed, part.mark > 0,
                !part.reported.contains(connection), !part.connections.contains(connection)
            else { continue }
            change(number, participant) { $0.connections.insert(connection) }
            isNews = true
        }
        return isNews
    }

    /// Records that the app is told all cleanups that it owes, and returns the sessions of which it had not been told.
    package mutating func tell(_ participant: Participant, at now: Moment) -> [UInt64] {
        let news = unfinished.filter { parts[$0]?[participant]?.progress == .owed }.sorted()
        for number in news {
            change(number, participant) { part in
                part.progress = .told
                part.toldAt = now.wall
            }
        }
        return news
    }

    /// Records an app's report on its cleanup. A settled cleanup stays settled.
    ///
    /// - Parameters:
    ///   - connection: The process that reports; `nil` for a waiver, which settles the whole entry.
    ///   - mark: The ``Part/mark`` that the sender was told before it began.
    ///   - took: The time since the cleanup began; `nil` if the report does not say.
    package mutating func report(
        _ progress: CleanupReport.Progress,
        of number: UInt64,
        by participant: Participant,
        on connection: String?,
        mark: UInt64 = 0,
        took: Duration? = nil,
        detail: String?,
        at now: Moment
    ) -> Effect {
        guard let part = parts[number]?[participant], let before = part.progress, !before.isSettled else {
            return .none
        }
        var next = part
        next.detail = detail
        // An app that reports on a session knows that it has ended.
        if progress != .waived { next.toldAt = part.toldAt ?? now.wall }
        switch progress {
        // Only the broker sets these.
        case .owed, .told, .enforced: return .none
        case .begun:
            next.progress = .begun
            if before != .begun { next.begunAt = now.wall }
            next.finishedAt = nil
        case .failed:
            next.progress = .failed
            if before != .failed || detail != part.detail { next.finishedAt = now.wall }
        case .waived:
            next.progress = .waived
            next.finishedAt = now.wall
        // A repeated report of a process that has reported under the present mark still counts.
        case .finished where mark != part.mark && connection.map(part.reported.contains) != true:
            next.progress = .owed
            if next != part { change(number, participant) { $0 = next } }
            return .refused
        case .finished:
            // An app's clock may be wrong, but it did not begin before it was told.
            if let took, before != .begun, let told = next.toldAt {
                next.begunAt = min(now.wall, max(told, now.wall - took / .seconds(1)))
            }
            if let connection {
                next.connections.remove(connection)
                next.reported.insert(connection)
            }
            next.isReported = true
            next.progress = next.connections.isEmpty ? .finished : .begun
            if next.connections.isEmpty { next.finishedAt = now.wall }
        }
        guard next != part else { return .none }
        change(number, participant) { $0 = next }
        if completeIfSettled(number) { return .completed }
        return next.progress == before && next.isReported == part.isReported ? .detailed : .recorded
    }

    /// Handles a connection that has left the bus, and returns the cleanups that are owed again.
    ///
    /// - Parameter mark: A mark that no earlier departure has used.
    package mutating func connectionEnded(
        _ connection: String,
        mark: UInt64
    ) -> [(session: UInt64, participant: Participant)] {
        var reopened: [(session: UInt64, participant: Participant)] = []
        for listing in listings[connection] ?? [] {
            let (number, participant) = (listing.session, listing.participant)
            guard var part = parts[number]?[participant] else { continue }
            part.reported.remove(connection)
            guard part.connections.remove(connection) != nil, part.progress?.isSettled != true else {
                // This change need not be committed.
                setPart(part, number, participant)
                continue
            }
            // Also in an open session: if the bus was lost, the process may still run and return under another name.
            part.mark = mark
            part.reported = []
            if part.isReported {
                part.progress = .owed
                part.begunAt = nil
                part.isReported = false
                reopened.append((number, participant))
            }
            change(number, participant) { $0 = part }
        }
        return reopened.sorted { ($0.session, $0.participant) < ($1.session, $1.participant) }
    }

    /// Handles the end of the app's last process, and returns the sessions whose cleanup is owed again.
    package mutating func processEnded(_ participant: Participant) -> [UInt64] {
        let isInterrupted = { (progress: CleanupReport.Progress?) in progress == .begun || progress == .told }
        let interrupted = unfinished.filter { isInterrupted(parts[$0]?[participant]?.progress) }.sorted()
        for number in interrupted {
            change(number, participant) { part in
                part.progress = .owed
                part.begunAt = nil
            }
        }
        return interrupted
    }

    package mutating func expire(timeout: Duration, at now: Moment) -> [UInt64] {
        let late = openRounds.filter { ($0.ended ?? now.uptime) + timeout <= now.uptime }.map(\.number)
        for number in late { changeSession(number) { $0.outcome = .expired } }
        return late
    }

    /// Moves the entries of `old` to `new`, the same app after it received a manifest. Returns whether there were any.
    package mutating func rename(_ old: Participant, to new: Participant) -> Bool {
        guard old != new else { return false }
        var isNews = false
        for (number, participants) in parts {
            guard let part = participants[old] else { continue }
            isNews = true
            setPart(nil, number, old)
            unsaved.insert(.part(number, old))
            // If both are listed, the entry that still owes remains, and waits for the processes of both.
            if let other = participants[new], other.progress?.isSettled != true || part.progress?.isSettled == true {
                change(number, new) { $0.take(part) }
            } else {
                change(number, new) { $0 = part }
            }
        }
        return isNews
    }

    /// Removes complete rounds except for the last `count`, and the accounts of sessions that ended before `date`.
    package mutating func prune(keeping count: Int, namesSince date: Date) {
        let complete = sessions.filter { $0.value.outcome == .complete }.keys.sorted()
        for number in complete.dropLast(count) { remove(number) }
        for (number, session) in sessions where session.account != nil && session.endedAt.map({ $0 < date }) ?? false {
            changeSession(number) { $0.account = nil }
        }
    }

    /// Removes this account from all sessions that have ended, and returns whether there were any. The debts remain.
    package mutating func forget(_ identifier: String) -> Bool {
        let theirs = sessions.filter { $0.value.endedAt != nil && $0.value.account?.hasIdentifier(identifier) == true }
        for number in theirs.keys { changeSession(number) { $0.account = nil } }
        return !theirs.isEmpty
    }

    /// Removes the oldest incomplete rounds beyond the latest `count`, and moves their debts to a later round of the
    /// same account and outcome. Otherwise an app that never reports would make the ledger grow with each sign-out.
    package mutating func fold(keeping count: Int) {
        let ended = unfinished.filter { sessions[$0]?.endedAt != nil }.sorted()
        for number in ended.dropLast(count) {
            guard let session = sessions[number],
                let later = ended.first(where: {
                    $0 > number && sessions[$0]?.account == session.account && sessions[$0]?.outcome == session.outcome
                })
            else { continue }
            for (participant, part) in parts[number] ?? [:] where part.isOwed {
                change(later, participant) { taken in
                    if taken.isOwed { return taken.take(part) }
                    let (isListed, mark) = (taken.progress != nil, taken.mark)
                    taken = part
                    // Changes the mark, so that the receipt that settled this entry does not count again if its sender
                    // repeats it.
                    if isListed, mark == part.mark { taken.mark ^= number }
                }
            }
            remove(number)
        }
    }

    @discardableResult
    private mutating func completeIfSettled(_ number: UInt64) -> Bool {
        guard let session = sessions[number], session.endedAt != nil, session.outcome != .complete,
            (parts[number] ?? [:]).values.allSatisfy({ $0.progress?.isSettled == true })
        else { return false }
        changeSession(number) { session in
            session.outcome = .complete
            // No app needs the account any more.
            session.account = nil
        }
        return true
    }

    private mutating func setSession(_ number: UInt64, _ session: Session?) {
        sessions[number] = session
        unsaved.insert(.session(number))
        if let session, session.outcome != .complete { unfinished.insert(number) } else { unfinished.remove(number) }
    }

    private mutating func changeSession(_ number: UInt64, _ body: (inout Session) -> Void) {
        guard var session = sessions[number] else { return }
        body(&session)
        setSession(number, session)
    }

    private mutating func change(_ number: UInt64, _ participant: Participant, _ body: (inout Part) -> Void) {
        var part = parts[number]?[participant] ?? Part()
        body(&part)
        setPart(part, number, participant)
        unsaved.insert(.part(number, participant))
    }

    private mutating func setPart(_ part: Part?, _ number: UInt64, _ participant: Participant) {
        list(part, instead: parts[number]?[participant], number, participant)
        parts[number, default: [:]][participant] = part
    }

    private mutating func list(_ part: Part?, instead former: Part?, _ number: UInt64, _ participant: Participant) {
        let names = { (part: Part?) in part.map { $0.connections.union($0.reported) } ?? [] }
        let (before, now) = (names(former), names(part))
        guard before != now else { return }
        let listing = Listing(session: number, participant: participant)
        for connection in now.subtracting(before) { listings[connection, default: []].insert(listing) }
        for connection in before.subtracting(now) {
            listings[connection]?.remove(listing)
            if listings[connection]?.isEmpty == true { listings[connection] = nil }
        }
    }
}

/// Enforced cleanup: another program cleans up for an app that is late. Until the claim ends, sign-in is blocked and
/// the app's own calls are refused. Claims are stored, so that they also hold after a restart of the broker.
extension CleanupLedger {
    /// The enforcement of one app's cleanup.
    package struct Claim: Sendable, Equatable {
        /// The connection of the enforcement program.
        package let connection: String
        /// The sessions whose data it deletes.
        package let sessions: Set<UInt64>

        package init(connection: String, sessions: Set<UInt64>) {
            (self.connection, self.sessions) = (connection, sessions)
        }
    }

    /// The cleanups that a late app owes.
    package struct Overdue: Sendable, Equatable {
        /// All sessions whose cleanup the app owes.
        package let sessions: Set<UInt64>
        /// The deadline, before or after it has passed.
        package let due: Duration
    }

    /// The apps that owe a cleanup, with their deadlines. A deadline counts from the end of the latest session that the
    /// app owes.
    package func deadlines(_ deadline: Duration, at now: Moment) -> [Participant: Overdue] {
        var overdue: [Participant: Overdue] = [:]
        for number in unfinished {
            let due = end(of: number, at: now) + deadline
            for (participant, part) in parts[number] ?? [:] where part.isOwed {
                let others = overdue[participant]
                overdue[participant] = Overdue(
                    sessions: (others?.sessions ?? []).union([number]),
                    due: max(others?.due ?? due, due)
                )
            }
        }
        return overdue
    }

    /// When the earliest of the sessions with debts ended: no deadline counts from an earlier time.
    func firstEnd(at now: Moment) -> Duration? {
        unfinished.lazy.filter { sessions[$0]?.endedAt != nil }.map { end(of: $0, at: now) }.min()
    }

    private func end(of number: UInt64, at now: Moment) -> Duration { sessions[number]?.endedUptime ?? now.uptime }

    /// Begins the claim, or with `nil` ends it.
    package mutating func claim(_ participant: Participant, _ claim: Claim?) {
        claims[participant] = claim
        unsaved.insert(.claim(participant))
    }

    /// The connections of the app's processes that may still hold the deleted data in memory.
    package func connections(of participant: Participant, in owed: Set<UInt64>) -> Set<String> {
        Set(owed.flatMap { parts[$0]?[participant]?.connections ?? [] })
    }

    /// Records that the app was stopped and its data deleted, ends the claim and returns the settled sessions. Call
    /// this only when no connection of the app is left.
    package mutating func enforce(_ participant: Participant, detail: String?, at now: Moment) -> [UInt64] {
        let owed = claims[participant]?.sessions ?? []
        let open = owed.filter { parts[$0]?[participant]?.isOwed == true }.sorted()
        for number in open {
            change(number, participant) { part in
                part.progress = .enforced
                part.finishedAt = now.wall
                part.detail = detail
                part.connections = []
                part.isReported = true
            }
            completeIfSettled(number)
        }
        claim(participant, nil)
        return open
    }
}

extension Account {
    /// A placeholder for an account whose name the ledger has deleted. The app still owes the cleanup.
    fileprivate static func forgotten(_ session: UInt64) -> Account {
        Account(identifier: "forgotten.\(session)", username: "forgotten")
    }
}

extension CleanupLedger {
    /// The connections that were given an account and have not reported, and those of enforcement programs. The broker
    /// watches for their ends.
    package var connections: Set<String> {
        Set(parts.values.flatMap { $0.values.flatMap(\.connections) }).union(claims.values.map(\.connection))
    }

    /// The rounds that can delay a sign-in, oldest first, each with the time when its session ended.
    package var openRounds: [(number: UInt64, ended: Duration?)] {
        unfinished.filter { sessions[$0]?.outcome == .open }.sorted().map { ($0, sessions[$0]?.endedUptime) }
    }

    /// The sessions whose cleanup the app owes, oldest first.
    ///
    /// - Parameter connection: The process that asks, which owes nothing after its report; `nil` asks for the whole
    ///   app.
    package func owed(by participant: Participant, on connection: String? = nil) -> [OwedSession] {
        unfinished.compactMap { number in
            guard let part = parts[number]?[participant], part.isOwed else { return nil }
            if let connection, part.isReported, !part.connections.contains(connection) { return nil }
            return OwedSession(
                epoch: number,
                account: sessions[number]?.account ?? .forgotten(number),
                mark: part.mark,
                isShared: part.connections.contains { $0 != connection }
            )
        }.sorted { $0.epoch < $1.epoch }
    }

    /// The apps that owe a cleanup for which the condition holds.
    package func participants(where condition: (UInt64, Part) -> Bool) -> Set<Participant> {
        unfinished.reduce(into: []) { found, number in
            let owing = (parts[number] ?? [:]).filter { $1.isOwed && condition(number, $1) }
            found.formUnion(owing.keys)
        }
    }

    /// Whether the app owes a cleanup, without a search of the other apps.
    func owes(_ participant: Participant, where condition: (Part) -> Bool = { _ in true }) -> Bool {
        unfinished.contains { parts[$0]?[participant].map { $0.isOwed && condition($0) } ?? false }
    }

    /// The apps that owe a cleanup.
    package var debtors: Set<Participant> { participants { _, _ in true } }
    /// The apps that owe a cleanup and have not begun it, or of which only some processes have reported.
    package var idle: Set<Participant> { participants { $1.isIdle } }
    /// The apps with a part in an open round.
    package var awaited: Set<Participant> { participants { number, _ in sessions[number]?.outcome == .open } }
    /// Whether a round is open or has expired.
    package var hasIncompleteRounds: Bool { sessions.values.contains { $0.outcome == .open || $0.outcome == .expired } }
    /// The numbers of the known rounds, oldest first.
    package var rounds: [UInt64] { sessions.filter { $0.value.endedAt != nil }.keys.sorted() }

    /// The round of a session; `nil` if the session has not ended or is unknown.
    package func report(of number: UInt64, isRunning: (Participant) -> Bool = { _ in false }) -> CleanupReport? {
        guard let session = sessions[number], let endedAt = session.endedAt, let outcome = session.outcome else {
            return nil
        }
        let since: (Date?) -> Double? = { date in date.map { max(0, $0.timeIntervalSince(endedAt)) } }
        let apps = (parts[number] ?? [:]).sorted { $0.key < $1.key }.map { participant, part in
            CleanupReport.App(
                identifier: participant.app,
                user: participant.user,
                progress: part.progress ?? .owed,
                toldAfter: since(part.toldAt),
                begunAfter: since(part.begunAt),
                finishedAfter: since(part.finishedAt),
                detail: part.detail,
                isRunning: isRunning(participant)
            )
        }
        return CleanupReport(session: number, endedAt: endedAt, outcome: outcome, apps: apps)
    }
}
