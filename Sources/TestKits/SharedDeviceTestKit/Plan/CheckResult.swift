public import FoundationEssentials
@_spi(Extensions) import SharedDevice

/// The result of a plan. The property names are the keys of the JSON report; times are in milliseconds.
public struct CheckResult: Sendable, Hashable, Codable {
    /// One expectation of one app.
    public struct Verdict: Sendable, Hashable, Codable {
        /// The outcome of an expectation.
        public enum Outcome: String, Sendable, Codable {
            /// It was checked, and holds or fails.
            case holds, fails
            /// It was not checked, because an earlier step failed.
            case skipped
        }

        /// The app's identifier.
        public let app: String
        public let expectation: String
        /// The step of the plan, counted from 1.
        public let step: Int
        public let outcome: Outcome
        /// The observation.
        public let detail: String
    }

    /// A sign-out, and its propagation to the apps.
    public struct Round: Sendable, Hashable, Codable {
        /// One app of a round; see ``PropagationReport/App``.
        public struct App: Sendable, Hashable, Codable {
            /// The app's identifier.
            public let identifier: String
            public let isClean: Bool
            /// From the ledger.
            public let heardAfter: Double?
            /// From the ledger.
            public let begunAfter: Double?
            /// From the ledger.
            public let cleanedAfter: Double?
            /// Observed by the kit.
            public let seenCleanAfter: Double?
            /// Its result in words.
            public let summary: String
        }

        /// The session that ended, by the epoch of its sign-in.
        public let session: UInt64
        /// The user who was signed out.
        public let user: String
        /// The apps, in the order of the plan.
        public let apps: [App]
        /// The events since the sign-in, in chronological order.
        public let events: [DeviceEvent]
        /// The time from the sign-out to the kit's last observation.
        public let observed: Double

        init(_ report: PropagationReport) {
            session = report.session
            user = report.user
            apps = report.apps.map { app in
                App(
                    identifier: app.identifier,
                    isClean: app.isClean,
                    heardAfter: app.heardAfter.map(Text.number),
                    begunAfter: app.begunAfter.map(Text.number),
                    cleanedAfter: app.cleanedAfter.map(Text.number),
                    seenCleanAfter: app.seenCleanAfter.map(Text.number),
                    summary: app.summary
                )
            }
            events = report.events
            observed = Text.number(report.observedFor)
        }
    }

    /// An app that this machine cannot run.
    public struct LeftOut: Sendable, Hashable, Codable {
        /// The app's identifier.
        public let app: String
        public let reason: String
        /// The steps that concern only this app, counted from 1; they are left out, too.
        public let steps: [Int]
    }

    /// A step that failed.
    public struct Failure: Sendable, Hashable, Codable {
        /// The step of the plan, counted from 1.
        public let step: Int
        /// The operation and its failure.
        public let message: String
    }

    /// The plan's title.
    public let title: String
    public let startedAt: Date
    /// The duration of the run.
    public let milliseconds: Double
    /// The steps of the plan, in words.
    public let steps: [String]
    /// The expectations, in the order of the plan.
    public let verdicts: [Verdict]
    /// The sign-outs, in order.
    public let rounds: [Round]
    /// The step that failed; `nil` if all succeeded.
    public let failure: Failure?
    /// The apps that took no part, because this machine lacks their dependencies.
    public let leftOut: [LeftOut]
    /// The last lines of each process; empty if everything holds.
    public let output: [String: String]

    /// Whether all steps were done and all expectations hold, not counting apps that are left out. False if no
    /// expectation was checked.
    public var holds: Bool { failure == nil && !verdicts.isEmpty && verdicts.allSatisfy { $0.outcome == .holds } }
}

extension CheckResult {
    var names: AppNames {
        let apps = verdicts.map(\.app) + rounds.flatMap { $0.apps.map(\.identifier) } + leftOut.map(\.app)
        return AppNames(apps, reserved: DeviceEvent.lanes)
    }
}
