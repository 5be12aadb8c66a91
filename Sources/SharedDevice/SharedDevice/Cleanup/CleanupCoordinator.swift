import DBusTransport
import Synchronization

/// Removes a previous user's data in named steps. After a crash it goes on with the step in which the crash was.
///
/// ```swift
/// let cleanup = CleanupCoordinator()
/// try cleanup.register("orders") { try await orders.deleteAll(of: $0.accounts) }
/// try cleanup.register("photos") { try await photos.remove($0.accounts) }
/// await application.follow(cleanup) { state in … }
/// ```
///
/// The steps run one after the other, in the order of their registration. A step that throws is tried again, by default three times in all.
/// If it still fails, the later steps run all the same, because less data is left then: so a step must not rely on the success of an earlier
/// one. The cleanup is reported as done only when all steps have succeeded.
///
/// A journal in the app's state directory says which steps are finished. The next run, in this process or after a crash, begins with the
/// first step that is not; the step in which the crash was runs again. So **every step must be idempotent**: if nothing is left to remove, it
/// succeeds. If the journal cannot be read or written, all steps run again. A step that a new version of the app adds or renames runs, too;
/// if a step does something else than before, give it another name. The journal is removed when the cleanup is reported. A cleanup of one
/// step writes one only if its report fails. There is none, and all steps run, where the app was started more than once during the session:
/// another process of it may store something after a step.
///
/// A step that never returns blocks the cleanup, and nobody sees anything meanwhile: limit the time of a step that waits for others. One
/// cleanup runs at a time. If two processes of an app share a state directory, each may run it, and their steps may overlap.
public final class CleanupCoordinator: Sendable {
    /// How often a cleanup tries, and how long it waits in between.
    public struct Options: Sendable {
        /// How often a step is tried before the cleanup goes on without it; at least once.
        public var attempts = 3
        /// The pause between two tries of a step.
        public var pause: Duration = .milliseconds(100)
        /// How long ``SharedDeviceApplication/follow(_:_:)`` waits before it tries a failed cleanup again. The wait doubles with each
        /// failure.
        public var firstWait: Duration = .seconds(1)
        /// The longest of these waits.
        public var longestWait: Duration = .seconds(60)

        /// Three tries; a cleanup that failed is tried again after 1, 2, 4 … 60 seconds.
        public init() {}
    }

    private struct Step: Sendable {
        let name: String
        let run: @Sendable (Cleanup) async throws -> String?
    }

    private typealias Turn = Task<Result<CleanupSummary, CleanupFailure>, Never>

    private struct State {
        var steps: [Step] = []
        var last: Turn?
        /// The journal of this process's last try that failed.
        var journal: CleanupJournal?
        /// Whether the disk may have a journal: one of an earlier process, or one that this process has written.
        var mayBeOnDisk = true
    }

    /// How often it tries, and how long it waits in between.
    public let options: Options
    private let stateDirectory: String?
    private let state = Locked(State())

    /// A coordinator without steps.
    ///
    /// - Parameters:
    ///   - stateDirectory: the directory of the journal; `nil` means the application's state directory. It must outlast the user data of the
    ///     app.
    ///   - options: how often it tries, and how long it waits in between.
    public init(stateDirectory: String? = nil, options: Options = Options()) {
        self.stateDirectory = stateDirectory
        self.options = options
    }

    /// Adds a step after the existing ones. A cleanup that is under way does not run it.
    ///
    /// The device's administrator reads the step's result in a report, as text: return amounts (“12 rows”), never names. The report has its
    /// first 200 characters.
    ///
    /// - Parameters:
    ///   - name: names the step in the journal and in reports. Keep it from version to version.
    ///   - step: removes the data of ``Cleanup/accounts``, on no particular thread. When it returns, the data must be gone from the disk;
    ///     if it throws, it is called again. It must be idempotent. A cancellation of the task that waits for the cleanup does not reach
    ///     it.
    /// - Throws: ``SharedDeviceError/Code/invalidRequest`` if the name is empty or taken.
    public func register<Result: Sendable>(
        _ name: String,
        _ step: @escaping @Sendable (Cleanup) async throws -> Result
    ) throws(SharedDeviceError) {
        let step = Step(name: name) { cleanup in
            let result = try await step(cleanup)
            return (result as? any CustomStringConvertible).map { String($0.description.prefix(200)) }
        }
        let isFree = state.withLock { state -> Bool in
            guard !name.isEmpty, !state.steps.contains(where: { $0.name == name }) else { return false }
            state.steps.append(step)
            return true
        }
        guard isFree else {
            throw SharedDeviceError(
                .invalidRequest,
                attempted: "register the cleanup step “\(name)”",
                message: "a step needs a name that no other step has, because the journal knows it by that"
            )
        }
    }

    /// Runs the steps that are not finished for `change`, and reports how it went: begun, and then done or failed.
    ///
    /// ``SharedDeviceApplication/follow(_:_:)`` calls it; so does an app with its own loop, after it has hidden its screen. On return all
    /// data is gone and that is reported: do not call ``SharedDeviceApplication/cleanupDone(_:detail:)``. Where another process of the app has
    /// ended meanwhile without a report, the next change names the data once more. If the waiting task is cancelled, the cleanup goes on, and
    /// this function returns at its end.
    ///
    /// - Throws: ``CleanupFailure``. Call again after a pause; finished steps do not run twice.
    @discardableResult
    public func run(
        _ change: AccountChange,
        for application: SharedDeviceApplication
    ) async throws(CleanupFailure) -> CleanupSummary {
        try await run(change, reporter: application)
    }

    /// - Parameter failures: failures before the first step. With any, the steps run, and all of them run again in the next try.
    @discardableResult
    package func run(
        _ change: AccountChange,
        reporter: any CleanupReporting,
        failures: [CleanupFailure.Step] = []
    ) async throws(CleanupFailure) -> CleanupSummary {
        // A separate task, which nobody cancels. It waits for the previous cleanup.
        let turn = state.withLock { state -> Turn in
            let (steps, previous) = (state.steps, state.last)
            let turn = Turn {
                _ = await previous?.value
                do throws(CleanupFailure) {
                    return .success(try await self.pass(steps, change, reporter, failures))
                } catch {
                    return .failure(error)
                }
            }
            state.last = turn
            return turn
        }
        return try await turn.value.get()
    }

    /// Removes the journal that a crash after the report has left. It names sessions that are over and clean. If it cannot be removed, it does
    /// no harm: no later session has the same account and epoch, and one that the broker has reopened is shared.
    func discardJournal(_ reporter: any CleanupReporting) async { _ = await removeJournal(store(reporter)) }

    /// - Returns: why the journal could not be saved; `nil` if it was.
    private func save(_ journal: CleanupJournal, _ store: CleanupJournalStore) async -> String? {
        state.withLock { $0.mayBeOnDisk = true }
        return await onSystemThread { store.save(journal) }
    }

    /// - Returns: why the journal could not be removed; `nil` if it was.
    private func removeJournal(_ store: CleanupJournalStore) async -> String? {
        let mayBeOnDisk = state.withLock { state in
            state.journal = nil
            return state.mayBeOnDisk
        }
        guard mayBeOnDisk else { return nil }
        let problem = await onSystemThread { store.remove() }
        if problem == nil { state.withLock { $0.mayBeOnDisk = false } }
        return problem
    }

    private func store(_ reporter: any CleanupReporting) -> CleanupJournalStore {
        CleanupJournalStore(stateDirectory: stateDirectory ?? reporter.stateDirectory)
    }

    private func pass(
        _ steps: [Step],
        _ change: AccountChange,
        _ reporter: any CleanupReporting,
        _ failures: [CleanupFailure.Step]
    ) async throws(CleanupFailure) -> CleanupSummary {
        let store = store(reporter)
        // While the screen shows the data, work under way may store more of it: what is deleted now has to be deleted again.
        let isHidden = failures.isEmpty
        if !isHidden { await discardJournal(reporter) }
        // What a journal says of a step, another process that stores something makes untrue.
        let keepsJournal = isHidden && !change.isShared
        // One on the disk is of an earlier run, or of another process: it says nothing of what this process has stored since.
        var journal = keepsJournal ? state.withLock { $0.journal } : nil
        if keepsJournal, journal == nil, !change.isHeld { journal = await onSystemThread { store.load() } }
        var plan = CleanupPlan(
            steps: steps.map(\.name),
            sessions: change.sessionsToCleanUp,
            journal: journal,
            attempts: options.attempts,
            failures: failures
        )
        // Nothing depends on this report.
        try? await reporter.cleanupBegan(change)
        var journalProblem: String?
        while true {
            switch plan.next {
            case .run(let name, let attempt):
                if attempt > 1 { try? await Task.sleep(for: options.pause) }
                do {
                    plan.succeeded(try await steps.first { $0.name == name }?.run(Cleanup(change)))
                    // A single step needs no journal: it has to run again after a crash in any case.
                    if keepsJournal, steps.count > 1 || plan.next != .reportDone {
                        journalProblem = await save(plan.journal, store)
                    }
                    if keepsJournal { state.withLock { $0.journal = plan.journal } }
                } catch {
                    plan.failed(String("\(error)".prefix(500)))
                }
            case .reportDone:
                var summary = plan.summary
                summary.journalProblem = journalProblem
                do throws(SharedDeviceError) {
                    try await reporter.cleanupDone(change, detail: "\(summary)")
                } catch {
                    throw CleanupFailure(steps: [], report: error)
                }
                summary.journalProblem = await removeJournal(store) ?? journalProblem
                return summary
            case .fail(let failed):
                let failure = CleanupFailure(steps: failed, report: nil)
                // The next try reports it.
                try? await reporter.cleanupFailed(change, reason: "\(failure)")
                throw failure
            }
        }
    }
}

/// The receiver of a ``CleanupCoordinator``'s reports.
package protocol CleanupReporting: Sendable {
    /// The directory for what must outlast the user data, for instance the journal.
    var stateDirectory: String { get }

    /// The cleanup begins.
    func cleanupBegan(_ change: AccountChange) async throws(SharedDeviceError)

    /// The data of the change's previous accounts is gone; `detail` says how much it was.
    func cleanupDone(_ change: AccountChange, detail: String?) async throws(SharedDeviceError)

    /// The data could not be removed, for this reason. The cleanup is tried again.
    func cleanupFailed(_ change: AccountChange, reason: String) async throws(SharedDeviceError)
}

extension SharedDeviceApplication: CleanupReporting {}
