/// Decides the next action of a cleanup; ``CleanupCoordinator`` performs it. A pure value. It leaves out the steps that
/// are finished in the journal, and retries a failed step at once, a bounded number of times.
@_spi(Extensions) public struct CleanupPlan: Sendable {
    @_spi(Extensions) public enum Action: Equatable, Sendable {
        case run(String, attempt: Int)
        case reportDone
        /// All steps have run, and these have failed.
        case fail([CleanupFailure.Step])
    }

    private let steps: [String]
    private let attempts: Int
    @_spi(Extensions) public private(set) var journal: CleanupJournal
    private var position = 0
    private var attempt = 1
    private var failures: [CleanupFailure.Step]

    /// - Parameter failures: failures before the first step. If there are any, the cleanup fails even if all steps
    ///   succeed.
    @_spi(Extensions) public init(
        steps: [String],
        sessions: [CleanupJournal.Session],
        journal: CleanupJournal?,
        attempts: Int,
        failures: [CleanupFailure.Step] = []
    ) {
        self.steps = steps
        self.attempts = max(attempts, 1)
        self.failures = failures
        self.journal = journal.flatMap { $0.covers(sessions) ? $0 : nil } ?? CleanupJournal(sessions: sessions)
        skipFinished()
    }

    @_spi(Extensions) public var next: Action {
        if position < steps.count { return .run(steps[position], attempt: attempt) }
        return failures.isEmpty ? .reportDone : .fail(failures)
    }

    /// Marks the step in `next` as finished. ``journal`` has to be on disk before the next step begins.
    @_spi(Extensions) public mutating func succeeded(_ result: String?) {
        guard position < steps.count else { return }
        journal.finish(steps[position], result: result)
        advance()
    }

    @_spi(Extensions) public mutating func failed(_ reason: String) {
        guard position < steps.count else { return }
        guard attempt >= attempts else {
            attempt += 1
            return
        }
        failures.append(CleanupFailure.Step(name: steps[position], reason: reason))
        advance()
    }

    @_spi(Extensions) public var summary: CleanupSummary { journal.summary(of: steps) }

    private mutating func advance() {
        position += 1
        attempt = 1
        skipFinished()
    }

    private mutating func skipFinished() {
        while position < steps.count, journal.hasFinished(steps[position]) { position += 1 }
    }
}

/// The input of a cleanup step: the accounts whose data it has to remove.
public struct Cleanup: Sendable {
    /// The change of the device's account that made the cleanup due.
    public let change: AccountChange

    /// The accounts whose data must be deleted. The current account can be among them, because of an earlier session of
    /// the same person.
    public var accounts: [Account] { change.previousAccounts }

    init(_ change: AccountChange) { self.change = change }
}

/// The result of a cleanup.
public struct CleanupSummary: Sendable, Hashable, CustomStringConvertible {
    /// A step that succeeded.
    public struct Step: Sendable, Hashable {
        /// The name under which the step was registered.
        public let name: String
        /// The step's return value as text; `nil` if it returned nothing.
        public let result: String?
    }

    /// The steps in order, including steps that an earlier run of the app finished.
    public let steps: [Step]
    /// The reason why the journal could not be kept; `nil` if it was kept. The steps ran without it, but a crash would
    /// have made all of them run again.
    public internal(set) var journalProblem: String?

    /// One line, for instance “2 steps: orders (12 rows), photos (3 files, 1024 bytes)”.
    public var description: String {
        let names = steps.map { step in step.result.map { "\(step.name) (\($0))" } ?? step.name }
        let text = "\(steps.count) \(steps.count == 1 ? "step" : "steps")"
        let problem = journalProblem.map { "; the journal was not kept: \($0)" } ?? ""
        return names.isEmpty ? text + problem : "\(text): \(names.joined(separator: ", "))\(problem)"
    }
}

/// The failure of a cleanup. The failed part will be retried.
public struct CleanupFailure: Error, Sendable, Hashable, CustomStringConvertible {
    /// A step that failed.
    public struct Step: Sendable, Hashable {
        /// The name under which the step was registered; ``CleanupFailure/screenName`` if the app could not hide its
        /// screen.
        public let name: String
        /// The error of the last attempt, as text.
        public let reason: String
    }

    /// The name of the implicit step that hides the screen, which begins every cleanup of
    /// ``SharedDeviceApplication/follow(_:_:)``.
    public static let screenName = "the screen"

    /// The failed steps in order; empty if all steps succeeded and only the report failed.
    public let steps: [Step]
    /// The reason why completion could not be reported; `nil` if it was reported, or was not due because steps failed.
    public let report: SharedDeviceError?

    /// The failed steps with their reasons, or the failure of the report.
    public var description: String {
        let failed = steps.map { "“\($0.name)” failed: \($0.reason)" }
        let unreported = report.map { ["all steps are done, but \($0)"] } ?? []
        return (failed + unreported).joined(separator: "; ")
    }
}
