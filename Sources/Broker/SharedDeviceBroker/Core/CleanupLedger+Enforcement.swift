import FoundationEssentials
import SharedDevice

/// Cleanups that are done in an app's place, because the app is late.
///
/// From the claim on, until the process behind it has reported, says that it is not at it, or is gone, that process may be deleting the app's data: nobody
/// signs in, and the app's own calls are refused. Claims are on the disk, so that this holds for a broker that starts anew meanwhile, too.
extension CleanupLedger {
    /// Who cleans up in an app's place.
    package struct Claim: Sendable, Equatable {
        /// The connection of the process that does it.
        package let connection: String
        /// The sessions whose data it deletes.
        package let sessions: Set<UInt64>

        package init(connection: String, sessions: Set<UInt64>) {
            self.connection = connection
            self.sessions = sessions
        }
    }

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

    /// The process behind the connection is about to clean up in the app's place.
    package mutating func claim(_ participant: Participant, _ claim: Claim) { setClaim(participant, claim) }

    /// The process does so no longer. The app or the next process cleans up what is left.
    package mutating func release(_ participant: Participant) { setClaim(participant, nil) }

    /// The app's connections of processes that may have in memory what is being deleted.
    package func connections(of participant: Participant, in owed: Set<UInt64>) -> Set<String> {
        Set(owed.flatMap { parts[$0]?[participant]?.connections ?? [] })
    }

    /// Records that the app was stopped and its data deleted, and ends the claim. To be called once no connection of the app is left.
    ///
    /// - Returns: the sessions that are settled by it.
    package mutating func enforce(_ participant: Participant, detail: String?, at now: Moment) -> [UInt64] {
        let owed = claims[participant]?.sessions ?? []
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
        release(participant)
        return open
    }
}
