public import FoundationEssentials

/// The broker's record of a cleanup round: which apps hold data of the session that ended, and how far each has cleaned up.
///
/// A round opens when a session ends, with every app that was told of the session's account. It is complete when each of them has reported
/// that the data is gone, or an administrator has waived it.
public struct CleanupReport: Sendable, Hashable, Codable {
    /// How far an app is. The value only grows, with one exception: an app that ends while it cleans owes the whole cleanup again.
    public enum Progress: String, Sendable, Codable, CaseIterable {
        /// It holds data and has not asked the broker since the session ended.
        case owed
        /// It has asked, and was told that its data must go.
        case told
        /// It has reported that it began.
        case begun
        /// It has reported a failure, and still owes the cleanup.
        case failed
        /// It has reported that the data is gone.
        case finished
        /// An administrator has declared the cleanup done.
        case waived
        /// It was late: it was stopped, and its data deleted in its place.
        case enforced

        /// Whether the app owes nothing any more.
        public var isSettled: Bool { self == .finished || self == .waived || self == .enforced }
    }

    /// The state of a round.
    public enum Outcome: String, Sendable, Codable {
        /// An app still owes a cleanup, and sign-ins may have to wait for it.
        case open
        /// Nobody owes anything.
        case complete
        /// An app still owes a cleanup, and the policy waits no longer.
        case expired
    }

    /// One app of a round. Times are in seconds since the session ended.
    public struct App: Sendable, Hashable, Codable {
        /// The app's identifier.
        public let identifier: String
        /// The user that runs it; `nil` in the answer of a broker that does not tell apps by their users.
        public let user: UInt32?
        /// How far it is.
        public let progress: Progress
        /// When it was told; `nil` before.
        public let toldAfter: Double?
        /// When it reported that it began; `nil` before.
        public let begunAfter: Double?
        /// When it reported the end, good or bad, or it was waived or enforced; `nil` before.
        public let finishedAfter: Double?
        /// Its words on the result, or the reason of the waiver.
        public let detail: String?
        /// Whether a process of this app is connected to the broker's bus, as far as the broker has seen.
        public let isRunning: Bool

        /// An entry with these values.
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
            self.identifier = identifier
            self.user = user
            self.progress = progress
            self.toldAfter = toldAfter
            self.begunAfter = begunAfter
            self.finishedAfter = finishedAfter
            self.detail = detail
            self.isRunning = isRunning
        }
    }

    /// The session that ended, by the epoch of its sign-in.
    public let session: UInt64
    /// When it ended, by the wall clock.
    public let endedAt: Date
    /// What became of the round.
    public let outcome: Outcome
    /// The apps that held data of the session, in the order of their identifiers.
    public let apps: [App]

    /// A report with these values.
    public init(session: UInt64, endedAt: Date, outcome: Outcome, apps: [App]) {
        self.session = session
        self.endedAt = endedAt
        self.outcome = outcome
        self.apps = apps
    }

    /// Whether nobody owes anything any more.
    public var isComplete: Bool { outcome == .complete }
    /// The apps that still owe the cleanup.
    public var owing: [App] { apps.filter { !$0.progress.isSettled } }
}
