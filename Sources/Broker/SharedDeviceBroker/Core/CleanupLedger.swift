package import FoundationEssentials
package import SharedDevice

/// An app as one user runs it: each user has data of their own, so that each pair owes a cleanup of its own.
package struct Participant: Sendable, Hashable, Comparable {
    /// The app's identifier.
    package let app: String
    /// The user that its processes run as.
    package let user: UInt32

    package init(app: String, user: UInt32) {
        self.app = app
        self.user = user
    }

    package static func < (left: Participant, right: Participant) -> Bool {
        (left.app, left.user) < (right.app, right.user)
    }
}

/// Records which app of which user holds whose data, and which one has reported that the data is gone (architecture, D10). Pure: the caller
/// passes the time, and writes what ``changes`` names to the disk.
///
/// The ledger lists an app under a session before the app is given the session's account. Only the app's own report or an administrator's
/// waiver settles the entry; the end of the app does not. Where several processes of an app were given the account, each one that still
/// runs has to report.
package struct CleanupLedger: Sendable, Equatable {
    /// One account's stay on the device, by the number of its session.
    package struct Session: Sendable, Equatable {
        /// Whose it is; `nil` once nobody holds data of it.
        package var account: Account?
        /// When it began, by the wall clock.
        package var startedAt: Date
        /// When it ended; `nil` while it is open.
        package var endedAt: Date?
        /// When it ended, by the clock that never jumps.
        package var endedUptime: Duration?
        /// What became of its round; `nil` while it is open.
        package var outcome: CleanupReport.Outcome?
    }

    /// One app's part in a session.
    package struct Part: Sendable, Equatable {
        /// How far its cleanup is; `nil` while the session is open.
        package var progress: CleanupReport.Progress?
        package var toldAt: Date?
        package var begunAt: Date?
        package var finishedAt: Date?
        package var detail: String?
        /// The connections that were given the account and have not reported.
        package var connections: Set<String> = []
        /// Whether a process has reported that the data is gone from the disk. The processes of ``connections`` still have it in memory.
        package var isReported = false
        /// The connections that have asked since a process of the app ended that had not reported; `nil` where there was no such end. Whoever
        /// has not asked since may have cleaned up before that process stored something. A restarted broker knows that there was such an end,
        /// and is asked anew.
        package var asked: Set<String>?
    }

    /// What is still to be written to the disk, by its keys.
    package struct Changes: Sendable, Equatable {
        package var sessions: Set<UInt64> = []
        package var parts: [UInt64: Set<Participant>] = [:]

        package var isEmpty: Bool { sessions.isEmpty && parts.isEmpty }

        package mutating func merge(_ other: Changes) {
            sessions.formUnion(other.sessions)
            parts.merge(other.parts) { $0.union($1) }
        }
    }

    /// What a report changed.
    package enum Effect: Sendable, Equatable {
        /// Nothing: there is no such duty, it was settled before, or the report says what is known.
        case none
        /// Only the words of the report.
        case detailed
        /// The app's progress.
        case recorded
        /// With it, nobody owes anything of this session any more.
        case completed
    }

    package private(set) var sessions: [UInt64: Session] = [:]
    package private(set) var parts: [UInt64: [Participant: Part]] = [:]
    package private(set) var changes = Changes()
    /// The sessions that are open, and those of which somebody owes something. All others are kept for questions only.
    private var unfinished: Set<UInt64> = []

    package init() {}

    /// What the store holds.
    package init(sessions: [UInt64: Session], parts: [UInt64: [Participant: Part]]) {
        self.sessions = sessions
        self.parts = parts
        unfinished = Set(sessions.filter { $0.value.outcome != .complete }.keys)
    }

    /// Hands over what is to be written.
    package mutating func takeChanges() -> Changes {
        defer { changes = Changes() }
        return changes
    }

    /// What could not be written is still to be written.
    package mutating func putBack(_ changes: Changes) { self.changes.merge(changes) }

    // MARK: Sessions

    /// Somebody signed in.
    package mutating func begin(_ number: UInt64, account: Account, at now: Moment) {
        setSession(number, Session(account: account, startedAt: now.wall))
    }

    /// Takes back a session that never came to be.
    package mutating func remove(_ number: UInt64) {
        setSession(number, nil)
        parts[number] = nil
        changes.parts[number] = nil
    }

    /// The session is over: every app that was given its account owes a cleanup.
    package mutating func end(_ number: UInt64, at now: Moment) {
        guard var session = sessions[number], session.outcome == nil else { return }
        session.endedAt = now.wall
        session.endedUptime = now.uptime
        session.outcome = .open
        setSession(number, session)
        for participant in (parts[number] ?? [:]).keys { change(number, participant) { $0.progress = .owed } }
        completeIfSettled(number)
    }

    /// The app is about to be given the account of an open session, on this connection. Returns whether the ledger did not list it yet.
    package mutating func hold(_ number: UInt64, by participant: Participant, on connection: String?) -> Bool {
        guard let session = sessions[number], session.outcome == nil else { return false }
        let before = parts[number]?[participant]
        var part = before ?? Part()
        if let connection { part.connections.insert(connection) }
        guard part != before else { return false }
        change(number, participant) { $0 = part }
        return true
    }

    // MARK: Cleanups

    /// A process asks. Where an unknown process of the app may have held the account, this one may be it, and has to report too.
    ///
    /// - Returns: whether the disk is to know of it.
    @discardableResult
    package mutating func ask(_ participant: Participant, on connection: String) -> Bool {
        var isNews = false
        for number in unfinished {
            guard let part = parts[number]?[participant], part.progress?.isSettled == false,
                part.asked?.contains(connection) == false
            else { continue }
            change(number, participant) { part in
                part.asked?.insert(connection)
                part.connections.insert(connection)
            }
            isNews = true
        }
        return isNews
    }

    /// The app has asked, and is told all that it owes. Returns the sessions of which it had not been told.
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
    /// - Parameter connection: the process that reports; `nil` for the administrator's waiver, which settles the whole entry.
    package mutating func report(
        _ progress: CleanupReport.Progress,
        of number: UInt64,
        by participant: Participant,
        on connection: String?,
        detail: String?,
        at now: Moment
    ) -> Effect {
        guard let part = parts[number]?[participant], let before = part.progress, !before.isSettled else {
            return .none
        }
        var next = part
        next.detail = detail
        // An app that reports on a session has heard of its end.
        if progress != .waived { next.toldAt = part.toldAt ?? now.wall }
        switch progress {
        // Only the broker itself sets these.
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
        case .finished where connection.map { part.asked?.contains($0) == false } ?? false:
            next.progress = .owed
        case .finished:
            if let connection { next.connections.remove(connection) }
            next.isReported = true
            next.progress = next.connections.isEmpty ? .finished : .begun
            if next.connections.isEmpty { next.finishedAt = now.wall }
        }
        guard next != part else { return .none }
        change(number, participant) { $0 = next }
        if completeIfSettled(number) { return .completed }
        return next.progress == before && next.isReported == part.isReported ? .detailed : .recorded
    }

    /// A connection has left the bus, and its process has not reported. What it stored after another process's cleanup is on the disk still:
    /// no receipt counts until its sender has asked again.
    ///
    /// - Returns: the cleanups that are owed again.
    package mutating func connectionEnded(_ connection: String) -> [(session: UInt64, participant: Participant)] {
        var reopened: [(session: UInt64, participant: Participant)] = []
        for (number, participants) in parts {
            for (participant, part) in participants where part.connections.contains(connection) {
                guard part.progress?.isSettled != true else {
                    parts[number]?[participant]?.connections.remove(connection)
                    continue
                }
                // Of an open session, too: where the bus was lost, the process may live on, and come back under another name.
                change(number, participant) { part in
                    part.connections.remove(connection)
                    part.asked = []
                    guard part.isReported else { return }
                    part.progress = .owed
                    part.begunAt = nil
                    part.isReported = false
                    reopened.append((number, participant))
                }
            }
        }
        return reopened.sorted { ($0.session, $0.participant) < ($1.session, $1.participant) }
    }

    /// The app's last process is gone: it owes again every cleanup that it was told of or had begun. A failed cleanup stays failed.
    ///
    /// - Returns: the sessions whose cleanup was interrupted.
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

    /// Lets the rounds expire whose session ended longer than `timeout` ago, and returns their numbers.
    package mutating func expire(timeout: Duration, at now: Moment) -> [UInt64] {
        let late = openRounds.filter { ($0.ended ?? now.uptime) + timeout <= now.uptime }.map(\.number)
        for number in late { changeSession(number) { $0.outcome = .expired } }
        return late
    }

    /// Moves what is listed under `old` to `new`: the same app, which now has a manifest. Returns whether the ledger has changed.
    package mutating func rename(_ old: Participant, to new: Participant) -> Bool {
        guard old != new else { return false }
        var isNews = false
        for (number, participants) in parts {
            guard let part = participants[old] else { continue }
            isNews = true
            parts[number]?[old] = nil
            changes.parts[number, default: []].insert(old)
            // If both are listed, the entry that still owes stays, and waits for the processes of both.
            if let other = participants[new], other.progress?.isSettled != true || part.progress?.isSettled == true {
                change(number, new) { merged in
                    merged.connections.formUnion(part.connections)
                    if part.asked != nil || other.asked != nil { merged.asked = [] }
                    if part.progress?.isSettled != true { merged.isReported = other.isReported && part.isReported }
                }
            } else {
                change(number, new) { $0 = part }
            }
        }
        return isNews
    }

    /// Forgets complete rounds but for the last `count`, and the names of accounts whose session ended before `date`.
    package mutating func prune(keeping count: Int, namesSince date: Date) {
        let complete = sessions.filter { $0.value.outcome == .complete }.keys.sorted()
        for number in complete.dropLast(count) { remove(number) }
        for (number, session) in sessions where session.account != nil && session.endedAt.map({ $0 < date }) ?? false {
            changeSession(number) { $0.account = nil }
        }
    }

    @discardableResult
    mutating func completeIfSettled(_ number: UInt64) -> Bool {
        guard let session = sessions[number], session.endedAt != nil, session.outcome != .complete,
            (parts[number] ?? [:]).values.allSatisfy({ $0.progress?.isSettled == true })
        else { return false }
        changeSession(number) { session in
            session.outcome = .complete
            // No app needs the account's name any more.
            session.account = nil
        }
        return true
    }

    private mutating func setSession(_ number: UInt64, _ session: Session?) {
        sessions[number] = session
        changes.sessions.insert(number)
        if let session, session.outcome != .complete { unfinished.insert(number) } else { unfinished.remove(number) }
    }

    private mutating func changeSession(_ number: UInt64, _ body: (inout Session) -> Void) {
        guard var session = sessions[number] else { return }
        body(&session)
        setSession(number, session)
    }

    mutating func change(_ number: UInt64, _ participant: Participant, _ body: (inout Part) -> Void) {
        body(&parts[number, default: [:]][participant, default: Part()])
        changes.parts[number, default: []].insert(participant)
    }

    // MARK: Questions

    /// The connections that were given an account and have not reported.
    package var connections: Set<String> {
        Set(parts.values.flatMap { $0.values.flatMap(\.connections) })
    }

    /// The rounds that a sign-in may have to wait for, oldest first, each with the time when its session ended.
    package var openRounds: [(number: UInt64, ended: Duration?)] {
        unfinished.filter { sessions[$0]?.outcome == .open }.sorted().map { ($0, sessions[$0]?.endedUptime) }
    }

    /// The sessions whose cleanup the app owes, oldest first.
    ///
    /// - Parameter connection: the process that asks; one that has reported owes nothing more, although another one of its app may. `nil`
    ///   asks for the whole app.
    package func owed(by participant: Participant, on connection: String? = nil) -> [OwedSession] {
        unfinished.compactMap { number in
            guard let part = parts[number]?[participant], part.progress?.isSettled == false else { return nil }
            if let connection, part.isReported, !part.connections.contains(connection) { return nil }
            return OwedSession(epoch: number, account: sessions[number]?.account, isAgain: part.asked != nil)
        }.sorted { $0.epoch < $1.epoch }
    }

    /// Whoever owes something and satisfies the condition.
    package func participants(where condition: (UInt64, Part) -> Bool) -> Set<Participant> {
        unfinished.reduce(into: []) { found, number in
            let owing = (parts[number] ?? [:]).filter { $1.progress?.isSettled == false && condition(number, $1) }
            found.formUnion(owing.keys)
        }
    }

    /// Whoever owes something.
    package var debtors: Set<Participant> { participants { _, _ in true } }
    /// Whoever owes something and has not begun, or has processes that have not reported although another one has.
    package var idle: Set<Participant> {
        participants { $1.progress == .owed || $1.progress == .told || $1.isReported }
    }
    /// Whoever open rounds wait for.
    package var awaited: Set<Participant> { participants { number, _ in sessions[number]?.outcome == .open } }
    /// Whether a round is not complete; one that has expired is not.
    package var hasIncompleteRounds: Bool { sessions.values.contains { $0.outcome == .open || $0.outcome == .expired } }
    /// The rounds that are known, oldest first.
    package var rounds: [UInt64] { sessions.filter { $0.value.endedAt != nil }.keys.sorted() }

    /// The round of a session; `nil` if the session is open or unknown.
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
