import FoundationEssentials
import SharedDevice

/// Cleanups that are done in an app's place, because the app is late.
///
/// The connection of the process that does it is listed among those that have to report, so that the round stays open until it has, also where
/// the broker starts anew meanwhile.
extension CleanupLedger {
    /// What somebody who is late owes.
    package struct Overdue: Sendable, Equatable {
        /// All sessions that the app owes.
        package let sessions: Set<UInt64>
        /// When the deadline is or was.
        package let due: Duration
    }

    /// Whoever owes a cleanup, with the deadline. It counts from the end of the latest of the sessions: an earlier one alone makes nobody late who
    /// was given another account since.
    package func deadlines(_ deadline: Duration, at now: Moment) -> [Participant: Overdue] {
        var overdue: [Participant: Overdue] = [:]
        for participant in debtors {
            let owed = Set(owed(by: participant).map(\.epoch))
            let ends = owed.map { sessions[$0]?.endedUptime ?? now.uptime }
            overdue[participant] = Overdue(sessions: owed, due: (ends.max() ?? now.uptime) + deadline)
        }
        return overdue
    }

    /// The process behind the connection is about to clean up in the app's place: nothing settles the entries before its report.
    package mutating func claim(_ owed: Set<UInt64>, of participant: Participant, on connection: String) {
        for number in owed { change(number, participant) { $0.connections.insert(connection) } }
    }

    /// The process does so no longer. The app or the next process cleans up what is left; a receipt that came meanwhile counts.
    package mutating func release(
        _ owed: Set<UInt64>,
        of participant: Participant,
        on connection: String,
        at now: Moment
    ) {
        for number in owed where parts[number]?[participant]?.connections.contains(connection) == true {
            change(number, participant) { part in
                part.connections.remove(connection)
                guard part.isReported, part.connections.isEmpty, part.progress?.isSettled == false else { return }
                part.progress = .finished
                part.finishedAt = now.wall
            }
            completeIfSettled(number)
        }
    }

    /// The entries that wait for the process behind the connection.
    package func entries(of connection: String) -> [Participant: Set<UInt64>] {
        var found: [Participant: Set<UInt64>] = [:]
        for (number, participants) in parts {
            for (participant, part) in participants where part.connections.contains(connection) {
                found[participant, default: []].insert(number)
            }
        }
        return found
    }

    /// The app's connections, beside the one that enforces, of processes that may have the data in memory.
    package func connections(of participant: Participant, in owed: Set<UInt64>, but own: String) -> Set<String> {
        Set(owed.flatMap { parts[$0]?[participant]?.connections ?? [] }).subtracting([own])
    }

    /// Records that the app was stopped and its data deleted. To be called once no other connection is left.
    ///
    /// - Returns: the sessions that are settled by it.
    package mutating func enforce(
        _ owed: Set<UInt64>,
        of participant: Participant,
        detail: String?,
        at now: Moment
    ) -> [UInt64] {
        let open = owed.filter { parts[$0]?[participant]?.progress?.isSettled == false }.sorted()
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
        return open
    }
}
