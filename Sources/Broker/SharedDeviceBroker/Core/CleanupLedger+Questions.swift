import FoundationEssentials
@_spi(Extensions) package import SharedDevice

extension Account {
    /// A placeholder account for a session whose account name the ledger has deleted. The app still owes the cleanup:
    /// an adapter deletes its program's data regardless of whose it is, and an app that was not running has deleted
    /// nothing yet.
    fileprivate static func forgotten(_ session: UInt64) -> Account {
        Account(identifier: "forgotten.\(session)", username: "forgotten")
    }
}

extension CleanupLedger {
    /// The connections that were given an account and have not reported, and those of enforcement programs.
    ///
    /// The broker watches for their ends. After a restart or a lost bus it may not know which app they belong to.
    package var connections: Set<String> {
        Set(parts.values.flatMap { $0.values.flatMap(\.connections) }).union(claims.values.map(\.connection))
    }

    /// The rounds that can delay a sign-in, oldest first, each with the time when its session ended.
    package var openRounds: [(number: UInt64, ended: Duration?)] {
        unfinished.filter { sessions[$0]?.outcome == .open }.sorted().map { ($0, sessions[$0]?.endedUptime) }
    }

    /// The sessions whose cleanup the app owes, oldest first.
    ///
    /// - Parameter connection: The process that asks; `nil` asks for the whole app. A process that has reported owes
    ///   nothing, even if another process of its app does.
    package func owed(by participant: Participant, on connection: String? = nil) -> [OwedSession] {
        unfinished.compactMap { number in
            guard let part = parts[number]?[participant], part.progress?.isSettled == false else { return nil }
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
            let owing = (parts[number] ?? [:]).filter { $1.progress?.isSettled == false && condition(number, $1) }
            found.formUnion(owing.keys)
        }
    }

    /// Whether the app owes a cleanup. Unlike ``debtors``, it does not search the other apps' parts.
    package func owes(_ participant: Participant) -> Bool { owes(participant) { _ in true } }
    package func isIdle(_ participant: Participant) -> Bool { owes(participant, where: Self.isIdle) }

    private func owes(_ participant: Participant, where condition: (Part) -> Bool) -> Bool {
        unfinished.contains { number in
            parts[number]?[participant].map { $0.progress?.isSettled == false && condition($0) } ?? false
        }
    }

    private static func isIdle(_ part: Part) -> Bool {
        part.progress == .owed || part.progress == .told || part.isReported
    }

    /// The apps that owe a cleanup.
    package var debtors: Set<Participant> { participants { _, _ in true } }
    /// The apps that owe a cleanup and have not begun it, or that have reported while some of their processes have not.
    package var idle: Set<Participant> { participants { Self.isIdle($1) } }
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
