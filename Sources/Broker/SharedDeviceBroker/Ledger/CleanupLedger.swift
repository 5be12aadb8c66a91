package import Foundation
package import SharedDevice

/// Records which app holds whose data, and which app has reported that the data is gone (architecture, D10). Pure: the caller passes the time,
/// and commits each change before anybody hears of it.
///
/// The ledger lists an app under a session before the app is given the session's account. Only the app's own report or an administrator's
/// waiver settles the entry; neither the end of the app nor telling it does.
package struct CleanupLedger: Sendable, Equatable {
    /// One account's stay on the device, by the epoch of its sign-in.
    package struct Session: Sendable, Equatable {
        /// Whose it is; `nil` once nobody holds data of it.
        package var account: Account?
        /// The account's number in the audit log.
        package var subject: Int64?
        /// When it began, by the wall clock.
        package var startedAt: Date
        /// When it ended; `nil` while it is open.
        package var endedAt: Date?
        /// What became of its round; `nil` while it is open.
        package var outcome: CleanupReport.Outcome?
    }

    /// One app's part in a session.
    package struct Participation: Sendable, Equatable {
        /// How far its cleanup is; `nil` while the session is open.
        package var progress: CleanupReport.Progress?
        package var toldAt: Date?
        package var begunAt: Date?
        package var finishedAt: Date?
        package var detail: String?
    }

    /// What a report changed.
    package enum Effect: Sendable, Equatable {
        /// Nothing: there is no such duty, or it was settled before.
        case none
        /// The app's progress.
        case recorded
        /// With it, nobody owes anything of this session any more.
        case completed
    }

    package private(set) var sessions: [UInt64: Session] = [:]
    package private(set) var participations: [UInt64: [String: Participation]] = [:]

    package init() {}

    /// What the store holds.
    init(sessions: [UInt64: Session], participations: [UInt64: [String: Participation]]) {
        self.sessions = sessions
        self.participations = participations
    }

    // MARK: Sessions

    /// Somebody signed in.
    package mutating func begin(_ epoch: UInt64, account: Account, subject: Int64?, at now: Date) {
        sessions[epoch] = Session(account: account, subject: subject, startedAt: now)
    }

    /// The session is over: every app that was given its account owes a cleanup.
    package mutating func end(_ epoch: UInt64, at now: Date) {
        guard sessions[epoch]?.outcome == nil, sessions[epoch] != nil else { return }
        sessions[epoch]?.endedAt = now
        sessions[epoch]?.outcome = .open
        for app in (participations[epoch] ?? [:]).keys { participations[epoch]?[app]?.progress = .owed }
        completeIfSettled(epoch)
    }

    /// The app is about to be given the account of an open session. Returns whether the ledger did not know yet.
    package mutating func hold(_ epoch: UInt64, by app: String) -> Bool {
        guard let session = sessions[epoch], session.outcome == nil, participations[epoch]?[app] == nil else {
            return false
        }
        participations[epoch, default: [:]][app] = Participation()
        return true
    }

    // MARK: Cleanups

    /// The app has asked, and is told all that it owes. Returns whether the ledger has changed.
    package mutating func tell(_ app: String, at now: Date) -> Bool {
        var isNews = false
        for epoch in owed(by: app).map(\.epoch) where participations[epoch]?[app]?.progress == .owed {
            participations[epoch]?[app]?.progress = .told
            participations[epoch]?[app]?.toldAt = now
            isNews = true
        }
        return isNews
    }

    /// Records an app's report on its cleanup. A settled cleanup stays settled.
    package mutating func report(
        _ progress: CleanupReport.Progress,
        of epoch: UInt64,
        by app: String,
        detail: String?,
        at now: Date
    ) -> Effect {
        guard var part = participations[epoch]?[app], let before = part.progress, !before.isSettled,
            // The same report again changes nothing.
            before != progress || part.detail != detail
        else { return .none }
        part.progress = progress
        part.detail = detail
        switch progress {
        // Only the broker itself sets these.
        case .owed, .told: return .none
        case .begun:
            part.begunAt = now
            part.finishedAt = nil
        case .failed, .finished, .waived: part.finishedAt = now
        }
        // An app that reports on a session has heard of its end.
        part.toldAt = part.toldAt ?? (progress == .waived ? nil : now)
        participations[epoch]?[app] = part
        return completeIfSettled(epoch) ? .completed : .recorded
    }

    /// The app's last process is gone: it owes again every cleanup that it was told of or had begun. A failed cleanup stays failed.
    ///
    /// - Returns: the sessions whose cleanup was interrupted.
    package mutating func processEnded(_ app: String) -> [UInt64] {
        let interrupted = participations.filter {
            $0.value[app]?.progress == .begun || $0.value[app]?.progress == .told
        }.keys
        for epoch in interrupted {
            participations[epoch]?[app]?.progress = .owed
            participations[epoch]?[app]?.begunAt = nil
        }
        return interrupted.sorted()
    }

    /// Lets the rounds expire whose session ended longer than `timeout` ago, and returns their epochs.
    package mutating func expire(timeout: TimeInterval, at now: Date) -> [UInt64] {
        let late = openRounds.filter { epoch in
            // A clock that was set back must not make a round wait for ever.
            sessions[epoch]?.endedAt.map { abs(now.timeIntervalSince($0)) >= timeout } ?? false
        }
        for epoch in late { sessions[epoch]?.outcome = .expired }
        return late
    }

    /// Moves what is listed under `old` to `new`: the same app, which now has a manifest. Returns whether the ledger has changed.
    package mutating func rename(_ old: String, to new: String) -> Bool {
        guard old != new else { return false }
        var isNews = false
        for (epoch, apps) in participations {
            guard let part = apps[old] else { continue }
            isNews = true
            participations[epoch]?[old] = nil
            // If both are listed, the entry that still owes stays.
            if let other = apps[new], other.progress?.isSettled == false || part.progress?.isSettled == true {
                continue
            }
            participations[epoch]?[new] = part
        }
        return isNews
    }

    /// Forgets complete rounds but for the last `count`.
    package mutating func prune(keeping count: Int) {
        let complete = sessions.filter { $0.value.outcome == .complete }.keys.sorted()
        for epoch in complete.dropLast(count) {
            sessions[epoch] = nil
            participations[epoch] = nil
        }
    }

    @discardableResult
    private mutating func completeIfSettled(_ epoch: UInt64) -> Bool {
        guard let session = sessions[epoch], session.endedAt != nil, session.outcome != .complete,
            (participations[epoch] ?? [:]).values.allSatisfy({ $0.progress?.isSettled == true })
        else { return false }
        sessions[epoch]?.outcome = .complete
        // No app needs the account's name any more.
        sessions[epoch]?.account = nil
        return true
    }

    // MARK: Questions

    /// The rounds that a sign-in may have to wait for, oldest first.
    package var openRounds: [UInt64] { sessions.filter { $0.value.outcome == .open }.keys.sorted() }

    /// The sessions whose cleanup the app owes, oldest first.
    package func owed(by app: String) -> [OwedSession] {
        participations.compactMap { epoch, apps in
            guard let progress = apps[app]?.progress, !progress.isSettled else { return nil }
            return OwedSession(epoch: epoch, account: sessions[epoch]?.account)
        }.sorted { $0.epoch < $1.epoch }
    }

    /// The apps that owe something.
    package var debtors: Set<String> {
        participations.values.reduce(into: []) { debtors, apps in
            for (app, part) in apps where part.progress?.isSettled == false { debtors.insert(app) }
        }
    }

    /// The apps that owe something and were not told.
    package var unaware: Set<String> {
        participations.values.reduce(into: []) { unaware, apps in
            for (app, part) in apps where part.progress == .owed { unaware.insert(app) }
        }
    }

    /// The apps that open rounds wait for, in the order of their names.
    package var awaited: [String] {
        let apps = openRounds.flatMap { epoch in
            (participations[epoch] ?? [:]).filter { $0.value.progress?.isSettled == false }.map(\.key)
        }
        return Set(apps).sorted()
    }

    /// The rounds that are not complete, those that expired among them.
    package var incompleteRounds: [UInt64] {
        sessions.filter { $0.value.outcome == .open || $0.value.outcome == .expired }.keys.sorted()
    }

    /// The round of a session; `nil` if the session is open or unknown.
    package func report(of epoch: UInt64, running: Set<String> = []) -> CleanupReport? {
        guard let session = sessions[epoch], let endedAt = session.endedAt, let outcome = session.outcome else {
            return nil
        }
        let since: (Date?) -> Double? = { date in date.map { max(0, $0.timeIntervalSince(endedAt)) } }
        let apps = (participations[epoch] ?? [:]).sorted { $0.key < $1.key }.map { app, part in
            CleanupReport.App(
                identifier: app,
                progress: part.progress ?? .owed,
                toldAfter: since(part.toldAt),
                begunAfter: since(part.begunAt),
                finishedAfter: since(part.finishedAt),
                detail: part.detail,
                isRunning: running.contains(app)
            )
        }
        return CleanupReport(session: epoch, endedAt: endedAt, outcome: outcome, apps: apps)
    }

    /// The rounds that are known, oldest first.
    package var rounds: [UInt64] { sessions.filter { $0.value.endedAt != nil }.keys.sorted() }
}
