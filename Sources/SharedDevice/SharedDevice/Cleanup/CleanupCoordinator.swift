import DBusTransport
import Synchronization

/// Removes a previous user's data in named steps, and goes on after a crash where it was.
///
/// ```swift
/// let cleanup = CleanupCoordinator()
/// try cleanup.register("orders") { try await orders.deleteAll(of: $0.accounts) }
/// try cleanup.register("photos") { try await photos.remove($0.accounts) }
/// await application.follow(cleanup) { state in … }
/// ```
///
/// The steps run one after the other, in the order of their registration. A step that throws is tried again, three times in all by
/// default. If it still fails, the steps after it run all the same, because every piece of data that is gone is one less to leak: a
/// step must not rely on an earlier one's success. The cleanup is reported as done only when all steps have succeeded.
///
/// A journal in the app's state directory says which steps are finished. The next run, in this process or after a crash, leaves these
/// out and begins with the first that is not; the step in which the crash was runs again. So **every step must be
/// idempotent**: where there is nothing left to remove, it succeeds. A journal that cannot be read or written makes all steps
/// run again. So do steps that a new version of the app adds or renames; one that does something else than before needs
/// another name. The journal goes when the cleanup is reported.
///
/// A step that never returns holds the cleanup up, and nobody sees anything meanwhile: set a limit where a step waits for others.
/// One cleanup runs at a time. Two processes of an app with one state directory may each run it; their steps may then overlap.
public final class CleanupCoordinator: Sendable {
    /// How hard a cleanup tries.
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

    private struct State {
        var steps: [Step] = []
        var last: Task<Void, Never>?
    }

    /// How hard it tries.
    public let options: Options
    private let stateDirectory: String?
    private let state = Locked(State())

    /// A coordinator without steps.
    ///
    /// - Parameters:
    ///   - stateDirectory: where the journal is kept; `nil` for the application's own state directory. It must outlast the
    ///     user data of the app.
    ///   - options: how hard it tries.
    public init(stateDirectory: String? = nil, options: Options = Options()) {
        self.stateDirectory = stateDirectory
        self.options = options
    }

    /// Adds a step, behind those that are there. A cleanup that is under way goes on without it.
    ///
    /// What it returns goes into the summary that is reported to the device's administrator, where it can be shown as text:
    /// return amounts (“12 rows”), never names. Text beyond 200 characters is cut.
    ///
    /// - Parameters:
    ///   - name: stands for the step in the journal and in reports; it stays the same from version to version.
    ///   - step: removes the data of ``Cleanup/accounts``, on no particular thread. When it returns, the data is gone from the disk;
    ///     when it throws, it is called again. It must be idempotent. Its task is not cancelled with the one that waits for it.
    /// - Throws: ``SharedDeviceError/Code/invalidRequest`` where the name is empty or taken.
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
    /// For loops of an app's own; ``SharedDeviceApplication/follow(_:_:)`` calls it. Hide the screen first. On return all data is gone and
    /// that is reported, so ``SharedDeviceApplication/cleanupDone(_:detail:)`` is not to be called. Cancelling the waiting task does not
    /// cancel the cleanup: a deletion that has begun is not given up, and this function returns at its end.
    ///
    /// - Throws: ``CleanupFailure``. Call again, after a pause: what is finished is not done twice.
    @discardableResult
    public func run(
        _ change: AccountChange,
        for application: SharedDeviceApplication
    ) async throws(CleanupFailure) -> CleanupSummary {
        try await run(change, reporter: application)
    }

    /// - Parameter failures: what has failed before the first step.
    @discardableResult
    package func run(
        _ change: AccountChange,
        reporter: any CleanupReporting,
        failures: [CleanupFailure.Step] = []
    ) async throws(CleanupFailure) -> CleanupSummary {
        // A task of its own, which nobody cancels, and which waits for the cleanup before it.
        let turn = state.withLock { state -> Task<Result<CleanupSummary, CleanupFailure>, Never> in
            let (steps, previous) = (state.steps, state.last)
            let turn = Task { () -> Result<CleanupSummary, CleanupFailure> in
                await previous?.value
                do throws(CleanupFailure) {
                    return .success(try await self.pass(steps, change, reporter, failures))
                } catch {
                    return .failure(error)
                }
            }
            state.last = Task { _ = await turn.value }
            return turn
        }
        return try await turn.value.get()
    }

    /// Removes a journal that a crash after the report has left: it names sessions that are over and clean. Where it cannot be
    /// removed it does no harm: no session has the same account and epoch.
    func discardJournal(_ reporter: any CleanupReporting) { _ = store(reporter).remove() }

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
        var plan = CleanupPlan(
            steps: steps.map(\.name),
            sessions: change.sessionsToCleanUp,
            journal: store.load(),
            attempts: options.attempts,
            failures: failures
        )
        // Beside the steps, which wait for no broker. That it began is a courtesy; the end is what counts.
        let beginning = Task { try? await reporter.cleanupBegan(change) }
        var journalProblem: String?
        while true {
            switch plan.next {
            case .run(let name, let attempt):
                if attempt > 1 { try? await Task.sleep(for: options.pause) }
                do {
                    plan.succeeded(try await steps.first { $0.name == name }?.run(Cleanup(change)))
                    journalProblem = store.save(plan.journal)
                } catch {
                    plan.failed(String("\(error)".prefix(500)))
                }
            case .reportDone:
                await beginning.value
                var summary = plan.summary
                summary.journalProblem = journalProblem
                do throws(SharedDeviceError) {
                    try await reporter.cleanupDone(change, detail: "\(summary)")
                } catch {
                    throw CleanupFailure(steps: [], report: error)
                }
                summary.journalProblem = store.remove() ?? journalProblem
                return summary
            case .fail(let failed):
                await beginning.value
                let failure = CleanupFailure(steps: failed, report: nil)
                // What cannot be told is told with the next try.
                try? await reporter.cleanupFailed(change, reason: "\(failure)")
                throw failure
            }
        }
    }
}

/// Whom a ``CleanupCoordinator`` tells how a cleanup goes.
package protocol CleanupReporting: Sendable {
    /// Where the app keeps what must outlast its user data, the journal among it.
    var stateDirectory: String { get }

    /// The cleanup begins.
    func cleanupBegan(_ change: AccountChange) async throws(SharedDeviceError)

    /// All data of the change's previous accounts is gone; `detail` says how much it was.
    func cleanupDone(_ change: AccountChange, detail: String?) async throws(SharedDeviceError)

    /// The data could not be removed, for this reason. It is tried again.
    func cleanupFailed(_ change: AccountChange, reason: String) async throws(SharedDeviceError)
}

extension SharedDeviceApplication: CleanupReporting {}
