public import FoundationEssentials

/// What the broker knows of a cleanup round: who holds data of the session that ended, and how far each of them is.
///
/// A round opens when a session ends, with every app that was told of the session's account. It is complete when each of them has reported
/// that the data is gone, or was waived by an administrator.
public struct CleanupReport: Sendable, Hashable, Codable {
    /// How far an app is. It only grows, but for an app that ends while it cleans: that one owes the whole cleanup again.
    public enum Progress: String, Sendable, Codable, CaseIterable {
        /// It holds data and has not asked the broker since the session ended.
        case owed
        /// It has asked, and was told that its data must go.
        case told
        /// It has reported that it began.
        case begun
        /// It has reported that it could not; it still owes the cleanup.
        case failed
        /// It has reported that the data is gone.
        case finished
        /// An administrator has declared the cleanup done.
        case waived

        /// Whether nothing is owed any more.
        public var isSettled: Bool { self == .finished || self == .waived }
    }

    /// What became of a round.
    public enum Outcome: String, Sendable, Codable {
        /// Somebody still owes a cleanup, and may yet be waited for.
        case open
        /// Nobody owes anything.
        case complete
        /// Somebody still owes a cleanup, and the policy does not wait any longer.
        case expired
    }

    /// One app of a round. Times are in seconds since the session ended.
    public struct App: Sendable, Hashable, Codable {
        /// The app's identifier.
        public let identifier: String
        /// How far it is.
        public let progress: Progress
        /// When it was told; `nil` where it was not.
        public let toldAfter: Double?
        /// When it reported that it began; `nil` where it did not.
        public let begunAfter: Double?
        /// When it reported the end, good or bad, or was waived; `nil` before.
        public let finishedAfter: Double?
        /// What it said of the result, or why it was waived.
        public let detail: String?
        /// Whether a process of this app is connected to the broker's bus, as far as the broker has seen.
        public let isRunning: Bool

        /// An entry with these values.
        public init(
            identifier: String,
            progress: Progress,
            toldAfter: Double? = nil,
            begunAfter: Double? = nil,
            finishedAfter: Double? = nil,
            detail: String? = nil,
            isRunning: Bool = false
        ) {
            self.identifier = identifier
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
