import Basics
import DBus
import FoundationEssentials
import Glibc
import Synchronization

/// Removes a previous user's data in named steps. After a crash it continues with the interrupted step.
///
/// ```swift
/// let cleanup = CleanupCoordinator()
/// try cleanup.register("orders") { try await orders.deleteAll(of: $0.accounts) }
/// try cleanup.register("photos") { try await photos.remove($0.accounts) }
/// await application.follow(cleanup) { state in … }
/// ```
///
/// The steps run one after the other, in the order of their registration. A step that throws is retried, by default up
/// to three attempts in all. If it still fails, the later steps run nevertheless, because that leaves less data: a step
/// must not rely on an earlier one. The cleanup is reported as done only when all steps have succeeded.
///
/// A journal in the app's state directory records the finished steps, so that the next run, in this process or after a
/// crash, begins with the first unfinished step. So **every step must be idempotent**: it succeeds if there is nothing
/// to remove. All steps run if the journal cannot be read or written, and if the app was started more than once during
/// the session: another process of the app may store data after a step. A step that a new version of the app adds or
/// renames runs, too; rename a step whose behaviour changes. A cleanup with a single step writes no journal.
///
/// A step that never returns blocks the cleanup without any notice: give a step that waits for something a time limit.
/// One cleanup runs at a time. If two processes of an app share a state directory, their steps may overlap.
public final class CleanupCoordinator: Sendable {
    /// The number of attempts of a cleanup, and the pauses between them.
    public struct Options: Sendable {
        /// The number of attempts of a step before the cleanup continues without it; at least one.
        public var attempts = 3
        /// The pause between two attempts of a step.
        public var pause: Duration = .milliseconds(100)
        /// The time that ``SharedDeviceApplication/follow(_:_:)`` waits before it retries a failed cleanup. The wait
        /// doubles with each failure.
        public var firstWait: Duration = .seconds(1)
        /// The longest of these waits.
        public var longestWait: Duration = .seconds(60)

        /// Creates the default options: three attempts, and a retry of a failed cleanup after 1, 2, 4 … 60 seconds.
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
        var journal: CleanupJournal?
        /// Whether there may be a journal on disk, from an earlier process or from this one.
        var mayBeOnDisk = true
    }

    /// The number of attempts, and the pauses between them.
    public let options: Options
    private let stateDirectory: String?
    private let state = Locked(State())

    /// Creates a coordinator without steps.
    ///
    /// - Parameters:
    ///   - stateDirectory: the directory of the journal; `nil` means the application's state directory. It must outlast
    ///     the user data of the app.
    ///   - options: the number of attempts, and the pauses between them.
    public init(stateDirectory: String? = nil, options: Options = Options()) {
        self.stateDirectory = stateDirectory
        self.options = options
    }

    /// Adds a step after the existing ones. A cleanup in progress does not run it.
    ///
    /// The administrator reads the first 200 characters of the step's result in a report: return amounts (“12 rows”),
    /// never names.
    ///
    /// - Parameters:
    ///   - name: the step's name in the journal and in reports. Keep it from version to version.
    ///   - step: removes the data of ``Cleanup/accounts``, on no particular thread. When it returns, the data must be
    ///     gone from the disk; if it throws, it is called again. No cancellation reaches it.
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
            let message = "a step needs a unique name, because the journal identifies the step by its name"
            throw SharedDeviceError(.invalidRequest, attempted: "register the cleanup step “\(name)”", message: message)
        }
    }

    /// How long a cleanup runs before the broker is told that it has begun.
    private static let shortCleanup = Duration.milliseconds(100)

    /// Runs the unfinished steps for `change`, and reports the progress: begun if they take a tenth of a second, then
    /// done or failed. So the app does not call ``SharedDeviceApplication/cleanupDone(_:detail:)``.
    ///
    /// ``SharedDeviceApplication/follow(_:_:)`` calls it. An app with its own loop calls it after hiding its screen. If
    /// another process of the app ended during the cleanup without a report, the next change names the data once more.
    /// If the waiting task is cancelled, the cleanup continues, and this function returns at its end.
    ///
    /// - Throws: ``CleanupFailure``. Call again after a pause; finished steps do not run twice.
    @discardableResult
    public func run(
        _ change: AccountChange,
        for application: SharedDeviceApplication
    ) async throws(CleanupFailure) -> CleanupSummary {
        try await run(change, reporter: application)
    }

    /// - Parameter failures: failures before the first step. If there are any, the steps run, and all of them run again
    ///   in the next attempt.
    @discardableResult
    package func run(
        _ change: AccountChange,
        reporter: any CleanupReporting,
        failures: [CleanupFailure.Step] = []
    ) async throws(CleanupFailure) -> CleanupSummary {
        // A separate task, so that cancelling the caller's task does not cancel it. It waits for the previous cleanup.
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

    /// Removes the journal that a crash after the report has left. One that stays does no harm: no later session has
    /// the same account and epoch, and a cleanup of a reopened session does not use it.
    func discardJournal(_ reporter: any CleanupReporting) async { _ = await removeJournal(store(reporter)) }

    private func removeJournal(_ store: CleanupJournalStore) async -> String? {
        let mayBeOnDisk = state.withLock { state in
            state.journal = nil
            return state.mayBeOnDisk
        }
        guard mayBeOnDisk else { return nil }
        let problem = await onSystemThread { store.write(nil) }
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
        // While the screen shows the data, work in progress may store more of it, so that the steps have to run again.
        let isHidden = failures.isEmpty
        if !isHidden { await discardJournal(reporter) }
        // If another process stores data, the journal's finished steps are no longer finished.
        let keepsJournal = isHidden && !change.isShared
        // A journal on disk is from an earlier run or another process: it does not cover the data that this process has
        // stored since.
        var journal = keepsJournal ? state.withLock { $0.journal } : nil
        if keepsJournal, journal == nil, !change.isHeld { journal = await onSystemThread { store.load() } }
        var plan = CleanupPlan(
            steps: steps.map(\.name),
            sessions: change.sessionsToCleanUp,
            journal: journal,
            attempts: options.attempts,
            failures: failures
        )
        let start = ContinuousClock.now
        // A short cleanup is one report: the receipt says when it began.
        let beginning = Task {
            guard (try? await Task.sleep(for: Self.shortCleanup)) != nil else { return }
            try? await reporter.cleanupBegan(change)
        }
        defer { beginning.cancel() }
        var journalProblem: String?
        while true {
            switch plan.next {
            case .run(let name, let attempt):
                if attempt > 1 { try? await Task.sleep(for: options.pause) }
                do {
                    plan.succeeded(try await steps.first { $0.name == name }?.run(Cleanup(change)))
                    // A single step needs no journal, because after a crash it has to run again anyway.
                    if keepsJournal, steps.count > 1 || plan.next != .reportDone {
                        state.withLock { $0.mayBeOnDisk = true }
                        let finished = plan.journal
                        journalProblem = await onSystemThread { store.write(finished) }
                    }
                    if keepsJournal { state.withLock { $0.journal = plan.journal } }
                } catch {
                    plan.failed(String("\(error)".prefix(500)))
                }
            case .reportDone:
                // The report of the beginning would replace this one.
                beginning.cancel()
                await beginning.value
                var summary = plan.summary
                summary.journalProblem = journalProblem
                do throws(SharedDeviceError) {
                    try await reporter.cleanupDone(change, detail: "\(summary)", took: .now - start)
                } catch {
                    throw CleanupFailure(steps: [], report: error)
                }
                summary.journalProblem = await removeJournal(store) ?? journalProblem
                return summary
            case .fail(let failed):
                let failure = CleanupFailure(steps: failed, report: nil)
                beginning.cancel()
                await beginning.value
                // If this report is lost, the next attempt sends another.
                try? await reporter.cleanupFailed(change, reason: "\(failure)")
                throw failure
            }
        }
    }
}

package protocol CleanupReporting: Sendable {
    var stateDirectory: String { get }

    func cleanupBegan(_ change: AccountChange) async throws(SharedDeviceError)

    /// The data of the change's previous accounts is deleted.
    func cleanupDone(_ change: AccountChange, detail: String?, took: Duration?) async throws(SharedDeviceError)

    func cleanupFailed(_ change: AccountChange, reason: String) async throws(SharedDeviceError)
}

extension SharedDeviceApplication: CleanupReporting {}

/// The progress of a cleanup. A pure value; ``CleanupJournalStore`` keeps it on disk.
@_spi(Extensions) public struct CleanupJournal: Codable, Equatable, Sendable {
    /// A session whose data must be deleted. It contains no user names: the journal must not keep what the cleanup
    /// removes.
    @_spi(Extensions) public struct Session: Codable, Hashable, Sendable {
        @_spi(Extensions) public let account: String
        @_spi(Extensions) public let epoch: UInt64

        @_spi(Extensions) public init(account: String, epoch: UInt64) { (self.account, self.epoch) = (account, epoch) }
    }

    @_spi(Extensions) public struct Finished: Codable, Equatable, Sendable {
        @_spi(Extensions) public let step: String
        @_spi(Extensions) public let result: String?
    }

    @_spi(Extensions) public let sessions: [Session]
    @_spi(Extensions) public private(set) var finished: [Finished] = []

    @_spi(Extensions) public init(sessions: [Session]) { self.sessions = sessions }

    /// Whether the finished steps are finished for all of `sessions`. For a later session every step still has to run.
    func covers(_ sessions: [Session]) -> Bool { Set(sessions).isSubset(of: self.sessions) }

    func hasFinished(_ step: String) -> Bool { finished.contains { $0.step == step } }

    mutating func finish(_ step: String, result: String?) {
        guard !hasFinished(step) else { return }
        finished.append(Finished(step: step, result: result))
    }

    func summary(of steps: [String]) -> CleanupSummary {
        CleanupSummary(
            steps: steps.map { name in .init(name: name, result: finished.first { $0.step == name }?.result) }
        )
    }
}

extension AccountChange {
    var sessionsToCleanUp: [CleanupJournal.Session] {
        stale.map { CleanupJournal.Session(account: $0.account.identifier, epoch: $0.epoch) }
    }

    @_spi(Extensions) public init(previous: [(account: Account, epoch: UInt64)], current: Account?, epoch: UInt64) {
        self.init(
            stale: previous.map { SessionRecord.Session(account: $0.account, epoch: $0.epoch) },
            current: current,
            epoch: epoch
        )
    }
}

struct CleanupJournalStore: Sendable {
    private let file: AtomicFile

    init(stateDirectory: String) { file = AtomicFile(path: "\(stateDirectory)/shared-device-cleanup.json") }

    /// Reads the journal; `nil` if there is none or it is unreadable. All steps then run again, which is always safe.
    func load() -> CleanupJournal? {
        guard let data = try? Data(contentsOf: URL(filePath: file.path)) else { return nil }
        return try? JSONDecoder().decode(CleanupJournal.self, from: data)
    }

    /// Writes the journal; `nil` removes it. Returns `nil` when the change is on disk, or the reason for the failure.
    func write(_ journal: CleanupJournal?) -> String? {
        do {
            guard let journal else {
                try file.remove()
                return nil
            }
            try makePrivateDirectory(file.directory)
            try file.write(JSONEncoder().encode(journal))
            return nil
        } catch {
            return "\(error)"
        }
    }
}
