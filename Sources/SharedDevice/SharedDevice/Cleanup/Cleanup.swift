/// What a cleanup step is told: whose data is to go.
public struct Cleanup: Sendable {
    /// The change of the device's account that made the cleanup due.
    public let change: AccountChange

    /// Whose data is to go. It may name the current account too: an earlier session of the same person.
    public var accounts: [Account] { change.previousAccounts }

    init(_ change: AccountChange) { self.change = change }
}

/// What a cleanup did.
public struct CleanupSummary: Sendable, Hashable, CustomStringConvertible {
    /// A step and what it returned.
    public struct Step: Sendable, Hashable {
        /// The name that it was registered under.
        public let name: String
        /// What it returned, as text; `nil` where it returned nothing.
        public let result: String?
    }

    /// The steps, in their order, those that an earlier run of the app finished included.
    public let steps: [Step]
    /// Why the journal could not be kept; `nil` where it could. The steps were run all the same; after a crash, they would all
    /// have been run again.
    public internal(set) var journalProblem: String?

    /// One line, for instance “2 steps: orders (12 rows), photos (3 files, 1024 bytes)”.
    public var description: String {
        let names = steps.map { step in step.result.map { "\(step.name) (\($0))" } ?? step.name }
        let text = "\(steps.count) \(steps.count == 1 ? "step" : "steps")"
        let problem = journalProblem.map { "; the journal was not kept: \($0)" } ?? ""
        return names.isEmpty ? text + problem : "\(text): \(names.joined(separator: ", "))\(problem)"
    }
}

/// Why a cleanup is not done. What it lacks is tried again.
public struct CleanupFailure: Error, Sendable, Hashable, CustomStringConvertible {
    /// A step that failed.
    public struct Step: Sendable, Hashable {
        /// The name that it was registered under; ``CleanupFailure/screenName`` where the app could not hide its screen.
        public let name: String
        /// The text of the error that its last try ended with.
        public let reason: String
    }

    /// The name that stands for hiding the screen, which is the first step of every cleanup that
    /// ``SharedDeviceApplication/follow(_:_:)`` runs.
    public static let screenName = "the screen"

    /// The steps that failed, in their order; none where all succeeded and only the report did not.
    public let steps: [Step]
    /// Why the end could not be reported; `nil` where it did not come to that.
    public let report: SharedDeviceError?

    /// One line.
    public var description: String {
        let failed = steps.map { "“\($0.name)” failed: \($0.reason)" }
        let unreported = report.map { ["all steps are done, but \($0)"] } ?? []
        return (failed + unreported).joined(separator: "; ")
    }
}
