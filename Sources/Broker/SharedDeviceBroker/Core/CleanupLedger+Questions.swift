import FoundationEssentials
package import SharedDevice

extension Account {
    /// The account that stands for a person whose name the ledger has forgotten. The app still owes the cleanup: an adapter deletes its program's data
    /// whoever it belongs to, and one that was not running in the session has deleted nothing yet.
    fileprivate static func forgotten(_ session: UInt64) -> Account {
        Account(identifier: "forgotten.\(session)", username: "forgotten")
    }
}

/// What the ledger says of itself.
extension CleanupLedger {
    /// The connections that were given an account and have not reported, and those of programs that clean up in an app's place. Their ends count, although
    /// a broker that has started anew, or has lost the bus meanwhile, does not know whose they are.
    package var connections: Set<String> {
        Set(parts.values.flatMap { $0.values.flatMap(\.connections) }).union(claims.values.map(\.connection))
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
            return OwedSession(
                epoch: number,
                account: sessions[number]?.account ?? .forgotten(number),
                mark: part.mark,
                isShared: part.connections.contains { $0 != connection }
            )
        }.sorted { $0.epoch < $1.epoch }
    }

    /// Whoever owes something and satisfies the condition.
    package func participants(where condition: (UInt64, Part) -> Bool) -> Set<Participant> {
        unfinished.reduce(into: []) { found, number in
            let owing = (parts[number] ?? [:]).filter { $1.progress?.isSettled == false && condition(number, $1) }
            found.formUnion(owing.keys)
        }
    }

    /// Whether this one owes something. Unlike ``debtors``, it costs no look at the parts of others.
    package func owes(_ participant: Participant) -> Bool { owes(participant) { _ in true } }
    /// Whether ``idle`` has this one.
    package func isIdle(_ participant: Participant) -> Bool { owes(participant, where: Self.isIdle) }

    private func owes(_ participant: Participant, where condition: (Part) -> Bool) -> Bool {
        unfinished.contains { number in
            parts[number]?[participant].map { $0.progress?.isSettled == false && condition($0) } ?? false
        }
    }

    private static func isIdle(_ part: Part) -> Bool {
        part.progress == .owed || part.progress == .told || part.isReported
    }

    /// Whoever owes something.
    package var debtors: Set<Participant> { participants { _, _ in true } }
    /// Whoever owes something and has not begun, or has processes that have not reported although another one has.
    package var idle: Set<Participant> { participants { Self.isIdle($1) } }
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
