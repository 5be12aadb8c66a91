import FoundationEssentials
@_spi(Extensions) import SharedDevice

/// Enforced cleanup: another program cleans up for an app that is late.
///
/// A claim ends when the program reports, releases it or disconnects. Until then the program may be deleting the app's
/// data, so sign-in is blocked and the app's own calls are refused. Claims are stored, so that they also hold after a
/// restart of the broker.
extension CleanupLedger {
    /// The enforcement of one app's cleanup.
    package struct Claim: Sendable, Equatable {
        /// The connection of the enforcement program.
        package let connection: String
        /// The sessions whose data it deletes.
        package let sessions: Set<UInt64>

        package init(connection: String, sessions: Set<UInt64>) {
            self.connection = connection
            self.sessions = sessions
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
    /// app owes: an app that was given a later account is not late because of an earlier one alone.
    package func deadlines(_ deadline: Duration, at now: Moment) -> [Participant: Overdue] {
        var overdue: [Participant: Overdue] = [:]
        for participant in debtors {
            let owed = Set(owed(by: participant).map(\.epoch))
            let ends = owed.map { sessions[$0]?.endedUptime ?? now.uptime }
            overdue[participant] = Overdue(sessions: owed, due: (ends.max() ?? now.uptime) + deadline)
        }
        return overdue
    }

    /// Records that the program starts to clean up for the app.
    package mutating func claim(_ participant: Participant, _ claim: Claim) { setClaim(participant, claim) }

    /// Ends the claim. The app or the next enforcement program does the rest of the cleanup.
    package mutating func release(_ participant: Participant) { setClaim(participant, nil) }

    /// The connections of the app's processes that may still hold the deleted data in memory.
    package func connections(of participant: Participant, in owed: Set<UInt64>) -> Set<String> {
        Set(owed.flatMap { parts[$0]?[participant]?.connections ?? [] })
    }

    /// Records that the app was stopped and its data deleted, and ends the claim. Call this only when no connection of
    /// the app is left.
    ///
    /// - Returns: The sessions that this settled.
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
