public import FoundationEssentials

/// The broker's record of a cleanup round: the apps that hold data of an ended session, and the progress of each.
///
/// A round opens when a session ends, with every app that was told of the session's account. It is complete when each
/// of them has reported that the data is deleted, or its cleanup was waived or enforced.
public struct CleanupReport: Sendable, Hashable, Codable {
    /// The progress of an app. It only advances, with one exception: an app that ends during its cleanup has to do the
    /// whole cleanup again.
    public enum Progress: String, Sendable, Codable, CaseIterable {
        /// The app holds data and has not asked the broker since the session ended.
        case owed
        /// The app has asked, and was told to delete its data.
        case told
        /// The app has reported that it began.
        case begun
        /// The app has reported a failure, and still has to clean up.
        case failed
        /// The app has reported that the data is deleted.
        case finished
        /// An administrator has declared the cleanup done.
        case waived
        /// The app was overdue: it was stopped, and its data was deleted on its behalf.
        case enforced

        /// Whether the app has no pending cleanup any more.
        public var isSettled: Bool { self == .finished || self == .waived || self == .enforced }
    }

    /// The state of a round.
    public enum Outcome: String, Sendable, Codable {
        /// An app still has to clean up, and sign-ins may have to wait for it.
        case open
        /// No app has a pending cleanup.
        case complete
        /// An app still has to clean up, and the policy no longer waits for it.
        case expired
    }

    /// One app of a round. Times are in seconds since the session ended.
    public struct App: Sendable, Hashable, Codable {
        /// The app's identifier; for an app without a manifest `IDENTIFIER (PROGRAM, uid N)`.
        public let identifier: String
        /// The user id that the app runs as; `nil` in the response of a broker that does not distinguish apps by user.
        public let user: UInt32?
        /// The progress of its cleanup.
        public let progress: Progress
        /// The time at which it was told; `nil` before.
        public let toldAfter: Double?
        /// The time at which it reported that it began; `nil` before.
        public let begunAfter: Double?
        /// The time at which it reported success or failure, or was waived or enforced; `nil` before.
        public let finishedAfter: Double?
        /// Its description of the result, or the reason for the waiver.
        public let detail: String?
        /// Whether a process of this app is connected to the broker's bus, as far as the broker knows.
        public let isRunning: Bool

        /// Creates an entry, for tests of code that shows reports.
        public init(
            identifier: String,
            user: UInt32? = nil,
            progress: Progress,
            toldAfter: Double? = nil,
            begunAfter: Double? = nil,
            finishedAfter: Double? = nil,
            detail: String? = nil,
            isRunning: Bool = false
        ) {
            (self.identifier, self.user, self.progress) = (identifier, user, progress)
            (self.toldAfter, self.begunAfter, self.finishedAfter) = (toldAfter, begunAfter, finishedAfter)
            (self.detail, self.isRunning) = (detail, isRunning)
        }
    }

    /// The session that ended, by the epoch of its sign-in.
    public let session: UInt64
    /// The wall-clock time at which it ended.
    public let endedAt: Date
    /// The state of the round.
    public let outcome: Outcome
    /// The apps that held data of the session, sorted by identifier.
    public let apps: [App]

    /// Creates a report, for tests of code that shows reports.
    public init(session: UInt64, endedAt: Date, outcome: Outcome, apps: [App]) {
        self.session = session
        self.endedAt = endedAt
        self.outcome = outcome
        self.apps = apps
    }

    /// Whether no app has a pending cleanup.
    public var isComplete: Bool { outcome == .complete }
    /// The apps that still have to clean up.
    public var owing: [App] { apps.filter { !$0.progress.isSettled } }
}
