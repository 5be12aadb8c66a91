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
        /// Changes each time that a process of the app leaves the bus without a report, and after the first such end at each start of the broker;
        /// 0 where there was none. Such a process may have stored something after another one's cleanup: a receipt brings back the mark under which
        /// its sender began, and counts only under that one.
        package var mark: UInt64 = 0
        /// The connections that have reported under this mark.
        package var reported: Set<String> = []

        /// Waits for the processes of another part as well.
        mutating func take(_ other: Part) {
            connections.formUnion(other.connections)
            // Another one than a receipt on its way has, where both had such ends.
            if mark != other.mark { mark ^= other.mark }
            reported = []
            if other.progress?.isSettled != true { isReported = isReported && other.isReported }
        }
    }

    /// A new ``Part/mark``, for whoever runs the ledger. Random, and no count: one that the disk did not have would come a second time after a
    /// power cut. JavaScript's numbers hold 53 bits.
    package static func newMark() -> UInt64 { .random(in: 1..<1 << 53) }

    /// What is still to be written to the disk, by its keys.
    package struct Changes: Sendable, Equatable {
        package var sessions: Set<UInt64> = []
        package var parts: [UInt64: Set<Participant>] = [:]
        package var claims: Set<Participant> = []
    }

    /// What a report changed.
    package enum Effect: Sendable, Equatable {
        /// Nothing: there is no such duty, it was settled before, or the report says what is known.
        case none
        /// Only the words of the report.
        case detailed
        /// The app's progress.
        case recorded
        /// The receipt does not count: the mark is another one than when its sender began.
        case refused
        /// With it, nobody owes anything of this session any more.
        case completed
    }

    package private(set) var sessions: [UInt64: Session] = [:]
    package private(set) var parts: [UInt64: [Participant: Part]] = [:]
    /// Cleanups that are done in an app's place. Whatever becomes of the entries meanwhile, each stays until its process has reported, is not at it, or is gone.
    package private(set) var claims: [Participant: Claim] = [:]
    package private(set) var changes = Changes()
    /// The sessions that are open, and those of which somebody owes something. All others are kept for questions only.
    private(set) var unfinished: Set<UInt64> = []
    /// The parts in which a connection is listed, so that the end of one costs no look at all others.
    private var listings: [String: Set<Listing>] = [:]

    private struct Listing: Hashable, Sendable {
        let session: UInt64
        let participant: Participant
    }

    package init() {}

    /// What the store holds.
    package init(
        sessions: [UInt64: Session],
        parts: [UInt64: [Participant: Part]],
        claims: [Participant: Claim] = [:]
    ) {
        self.sessions = sessions
        self.parts = parts
        self.claims = claims
        unfinished = Set(sessions.filter { $0.value.outcome != .complete }.keys)
        for (number, participants) in parts {
            for (participant, part) in participants { list(part, instead: nil, number, participant) }
        }
    }

    /// Hands over what is to be written.
    package mutating func takeChanges() -> Changes {
        defer { changes = Changes() }
        return changes
    }

    /// What could not be written is still to be written.
    package mutating func putBack(_ unwritten: Changes) {
        changes.sessions.formUnion(unwritten.sessions)
        changes.parts.merge(unwritten.parts) { $0.union($1) }
        changes.claims.formUnion(unwritten.claims)
    }

    // MARK: Sessions

    /// Somebody signed in.
    package mutating func begin(_ number: UInt64, account: Account, at now: Moment) {
        setSession(number, Session(account: account, startedAt: now.wall))
    }

    /// Takes back a session that never came to be.
    package mutating func remove(_ number: UInt64) {
        setSession(number, nil)
        for (participant, part) in parts[number] ?? [:] { list(nil, instead: part, number, participant) }
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

    /// The app is about to be given the account of an open session, on this connection. Returns whether the ledger has changed.
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

    /// A process asks. Where a process has left the bus without a report, this one may be it under another name, and has to report too.
    ///
    /// - Returns: whether the disk is to know of it.
    @discardableResult
    package mutating func ask(_ participant: Participant, on connection: String) -> Bool {
        var isNews = false
        for number in unfinished {
            guard let part = parts[number]?[participant], part.progress?.isSettled == false, part.mark > 0,
                !part.reported.contains(connection), !part.connections.contains(connection)
            else { continue }
            change(number, participant) { $0.connections.insert(connection) }
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
    /// - Parameters:
    ///   - connection: the process that reports; `nil` for the administrator's waiver, which settles the whole entry.
    ///   - mark: what the sender was told of ``Part/mark`` before it began.
    package mutating func report(
        _ progress: CleanupReport.Progress,
        of number: UInt64,
        by participant: Participant,
        on connection: String?,
        mark: UInt64 = 0,
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
        // What this process has reported under the present mark counts, whatever it says again.
        case .finished where mark != part.mark && connection.map(part.reported.contains) != true:
            next.progress = .owed
            if next != part { change(number, participant) { $0 = next } }
            return .refused
        case .finished:
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

    /// A connection has left the bus. Where its process has not reported, what it stored after another process's cleanup is on the disk still.
    ///
    /// - Parameter mark: a number that no such end has had.
    /// - Returns: the cleanups that are owed again.
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
                // The disk need not know of it.
                setPart(part, number, participant)
                continue
            }
            // Of an open session, too: where the bus was lost, the process may live on, and come back under another name.
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
            setPart(nil, number, old)
            changes.parts[number, default: []].insert(old)
            // If both are listed, the entry that still owes stays, and waits for the processes of both.
            if let other = participants[new], other.progress?.isSettled != true || part.progress?.isSettled == true {
                change(number, new) { $0.take(part) }
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

    /// Forgets whose data the sessions of this account have left. What apps owe of them stays.
    ///
    /// - Returns: whether the ledger has changed.
    package mutating func forget(_ identifier: String) -> Bool {
        let theirs = sessions.filter { $0.value.endedAt != nil && $0.value.account?.hasIdentifier(identifier) == true }
        for number in theirs.keys { changeSession(number) { $0.account = nil } }
        return !theirs.isEmpty
    }

    /// Keeps at most `count` rounds that are over and not complete. What apps owe of the oldest ones moves to a later round of the same account.
    /// Otherwise an app that never reports would make the ledger grow with each sign-out.
    package mutating func fold(keeping count: Int) {
        let ended = unfinished.filter { sessions[$0]?.endedAt != nil }.sorted()
        for number in ended.dropLast(count) {
            guard let session = sessions[number],
                let later = ended.first(where: {
                    $0 > number && sessions[$0]?.account == session.account && sessions[$0]?.outcome == session.outcome
                })
            else { continue }
            for (participant, part) in parts[number] ?? [:] where part.progress?.isSettled == false {
                change(later, participant) { taken in
                    if taken.progress?.isSettled == false { return taken.take(part) }
                    let (isListed, mark) = (taken.progress != nil, taken.mark)
                    taken = part
                    // Another one than the receipt has that settled it: its sender may send it once more.
                    if isListed, mark == part.mark { taken.mark ^= number }
                }
            }
            remove(number)
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
        var part = parts[number]?[participant] ?? Part()
        body(&part)
        setPart(part, number, participant)
        changes.parts[number, default: []].insert(participant)
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

    mutating func setClaim(_ participant: Participant, _ claim: Claim?) {
        claims[participant] = claim
        changes.claims.insert(participant)
    }
}
