/// Decides what a cleanup does next. Pure: ``CleanupCoordinator`` does it, and says how it went.
///
/// The steps come in the order of their registration, without those that the journal has as finished. One that fails is tried again
/// at once, a bounded number of times; after that the steps behind it still get their chance, because every piece of data
/// that is gone is one less to leak. The cleanup is done when all steps are finished.
struct CleanupPlan {
    enum Action: Equatable {
        /// Run this step. `attempt` counts from 1.
        case run(String, attempt: Int)
        /// All steps are finished: report that.
        case reportDone
        /// Each step had its chance, and these have failed.
        case fail([CleanupFailure.Step])
    }

    private let steps: [String]
    private let attempts: Int
    private(set) var journal: CleanupJournal
    private var position = 0
    private var attempt = 1
    private var failures: [CleanupFailure.Step]

    /// - Parameters:
    ///   - journal: what an earlier run left; it counts where it covers `sessions`.
    ///   - attempts: how often a step is tried, at least once.
    ///   - failures: what has failed before the first step; the cleanup is then not done, whatever the steps do.
    init(
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

    /// What to do. The same until ``succeeded(_:)`` or ``failed(_:)`` tells how it went.
    var next: Action {
        if position < steps.count { return .run(steps[position], attempt: attempt) }
        return failures.isEmpty ? .reportDone : .fail(failures)
    }

    /// The step in `next` is finished: ``journal`` is to be on disk before the next step begins.
    mutating func succeeded(_ result: String?) {
        guard position < steps.count else { return }
        journal.finish(steps[position], result: result)
        advance()
    }

    /// This try of the step in `next` failed.
    mutating func failed(_ reason: String) {
        guard position < steps.count else { return }
        guard attempt >= attempts else {
            attempt += 1
            return
        }
        failures.append(CleanupFailure.Step(name: steps[position], reason: reason))
        advance()
    }

    var summary: CleanupSummary { journal.summary(of: steps) }

    private mutating func advance() {
        position += 1
        attempt = 1
        skipFinished()
    }

    private mutating func skipFinished() {
        while position < steps.count, journal.hasFinished(steps[position]) { position += 1 }
    }
}
