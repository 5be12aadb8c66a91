/// Decides the next action of a cleanup. A pure value: ``CleanupCoordinator`` performs the action and reports its
/// result back.
///
/// The steps come in the order of their registration, without the steps that are finished in the journal. A failed step
/// is retried at once, a bounded number of times. Then the later steps run nevertheless, because that leaves less data.
/// The cleanup is done when all steps are finished.
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

    /// - Parameters:
    ///   - journal: the journal of an earlier run. It is used if it covers `sessions`.
    ///   - attempts: the maximum number of attempts of a step, at least one.
    ///   - failures: failures before the first step. If there are any, the cleanup counts as failed even if all steps
    ///     succeed.
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
        if let journal, journal.covers(sessions) {
            self.journal = journal
        } else {
            self.journal = CleanupJournal(sessions: sessions)
        }
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
