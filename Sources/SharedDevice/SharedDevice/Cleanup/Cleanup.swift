/// What a cleanup step is told: whose data it has to remove.
public struct Cleanup: Sendable {
    /// The change of the device's account that made the cleanup due.
    public let change: AccountChange

    /// The accounts whose data has to go. The current account can be among them, for an earlier session of the same person.
    public var accounts: [Account] { change.previousAccounts }

    init(_ change: AccountChange) { self.change = change }
}

/// What a cleanup did.
public struct CleanupSummary: Sendable, Hashable, CustomStringConvertible {
    /// A step and what it returned.
    public struct Step: Sendable, Hashable {
        /// The name that it was registered under.
        public let name: String
        /// What it returned, as text; `nil` if it returned nothing.
        public let result: String?
    }

    /// The steps in their order, including those that an earlier run of the app finished.
    public let steps: [Step]
    /// Why the journal could not be kept; `nil` if it could. The steps ran all the same; after a crash all of them would have run again.
    public internal(set) var journalProblem: String?

    /// One line, for instance “2 steps: orders (12 rows), photos (3 files, 1024 bytes)”.
    public var description: String {
        let names = steps.map { step in step.result.map { "\(step.name) (\($0))" } ?? step.name }
        let text = "\(steps.count) \(steps.count == 1 ? "step" : "steps")"
        let problem = journalProblem.map { "; the journal was not kept: \($0)" } ?? ""
        return names.isEmpty ? text + problem : "\(text): \(names.joined(separator: ", "))\(problem)"
    }
}

/// Why a cleanup is not done. The rest of it is tried again.
public struct CleanupFailure: Error, Sendable, Hashable, CustomStringConvertible {
    /// A step that failed.
    public struct Step: Sendable, Hashable {
        /// The name under which it was registered; ``CleanupFailure/screenName`` if the app could not hide its screen.
        public let name: String
        /// The error of its last try, as text.
        public let reason: String
    }

    /// The name that stands for hiding the screen, which is the first step of every cleanup that
    /// ``SharedDeviceApplication/follow(_:_:)`` runs.
    public static let screenName = "the screen"

    /// The steps that failed, in their order; empty if all steps succeeded and only the report failed.
    public let steps: [Step]
    /// Why the end could not be reported; `nil` if the report succeeded, or was not due because steps failed.
    public let report: SharedDeviceError?

    /// One line.
    public var description: String {
        let failed = steps.map { "“\($0.name)” failed: \($0.reason)" }
        let unreported = report.map { ["all steps are done, but \($0)"] } ?? []
        return (failed + unreported).joined(separator: "; ")
    }
}
