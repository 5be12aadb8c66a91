package import DBusTransport
import Dispatch
package import Foundation
import SharedDevice
import Synchronization

/// Holds the device's one account and the ledger of its cleanups. Every change of the account goes through ``apply(_:cause:)``, which commits,
/// raises the epoch and then announces (architecture, D9): an app that hears the announcement and asks gets the new answer.
package actor DeviceBroker {
    /// What the broker calls outside itself. It calls all of it on its own queue, so none of it may wait for the broker.
    package struct Surroundings: Sendable {
        /// Tells all apps to ask. The broker calls it after each commit, before the next commit can begin.
        package var announce: @Sendable (DeviceState) -> Void
        /// An app owes a cleanup and may not be running.
        package var wake: @Sendable (_ app: String) -> Void
        /// The broker could not write the ledger. It tries again with the next change.
        package var report: @Sendable (_ problem: String) -> Void
        /// The wall clock.
        package var now: @Sendable () -> Date

        package init(
            announce: @escaping @Sendable (DeviceState) -> Void = { _ in },
            wake: @escaping @Sendable (_ app: String) -> Void = { _ in },
            report: @escaping @Sendable (_ problem: String) -> Void = { _ in },
            now: @escaping @Sendable () -> Date = { Date() }
        ) {
            self.announce = announce
            self.wake = wake
            self.report = report
            self.now = now
        }
    }

    let store: LedgerStore
    let provider: any IdentityProvider
    let surroundings: Surroundings
    let machine = DeviceStateMachine()
    /// The answers that stay the same until something changes.
    package nonisolated let standingAnswers = StandingAnswers()
    private let executor = QueueExecutor("org.notifycenter.SharedDeviceBroker")
    private(set) var state: DeviceState
    var tokens: TokenVault
    /// What the provider returned at sign-in. A restart loses it; tokens are then issued for the account alone.
    var identity: AuthenticatedIdentity?
    /// The numbers of the sign-ins that were cancelled last.
    var cancelledSignIns: [String] = []
    /// The last sign-in that had a number, and the session that it began.
    var lastSignIn: (request: String, epoch: UInt64)?
    /// Whether the next sign-in waits for the cleanup of the last session.
    var policy = CleanupPolicy()
    /// The organisation that the device has joined; `nil` means that it has joined none.
    private(set) var enrolment: Membership?
    /// Who may sign in, by the managed configuration alone. ``rules`` adds the enrolment.
    var configuredRules = DeviceRules()

    /// Who holds whose data. It is changed first and written to the disk afterwards.
    var ledger: CleanupLedger
    private var stored: CleanupLedger
    private var log: [AuditEntry] = []
    private var waitingForDisk: [CheckedContinuation<Void, any Error>] = []
    private var isWritingScheduled = false
    /// The apps that have a process on the bus.
    var running: Set<String> = []
    /// Grows with each change of ledger or running apps.
    private(set) var revision: UInt64 = 0
    private var waitingForChange: [UInt64: CheckedContinuation<Void, Never>] = [:]
    private var nextWaiter: UInt64 = 0
    private var expiry: Task<Void, Never>?
    private var reminder: Task<Void, Never>?

    /// The actor runs here: its steps wait for the disk.
    package nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// - Throws: ``StoreError``.
    package init(
        database: DeviceDatabase,
        provider: any IdentityProvider,
        surroundings: Surroundings = Surroundings()
    ) throws(StoreError) {
        store = LedgerStore(database: database)
        self.provider = provider
        self.surroundings = surroundings
        let state = try AccountStore(database: database).state()
        self.state = state
        enrolment = try store.enrolment()
        var ledger = try store.ledger()
        stored = ledger
        // An account that is signed in needs a session in the ledger: without one, nobody would record who holds its data.
        if let account = state.account, ledger.sessions[state.epoch] == nil {
            ledger.begin(state.epoch, account: account, subject: nil, at: surroundings.now())
        }
        self.ledger = ledger
        tokens = TokenVault(epoch: state.epoch)
    }

    /// The state that was committed last.
    package var current: DeviceState { state }

    /// Tells all apps to ask although nothing has changed, and wakes those that owe a cleanup. Called after a start and after an outage:
    /// apps may have missed a broadcast.
    package func announceAgain() {
        surroundings.announce(state)
        wakeDebtors()
        remind()
    }

    /// Wakes every app that owes a cleanup.
    package func wakeDebtors() { for app in ledger.debtors { surroundings.wake(app) } }

    /// Puts a new policy in force. It applies to open rounds too.
    package func use(_ policy: CleanupPolicy) {
        self.policy = policy
        scheduleExpiry()
        noteChange()
    }

    /// Who may sign in. On a device that has joined an organisation, the enrolment names the tenant; the tenant of the configuration then
    /// matters for joining only.
    var rules: DeviceRules { rules(with: enrolment) }

    private func rules(with enrolment: Membership?) -> DeviceRules {
        DeviceRules(
            requiresJoin: configuredRules.requiresJoin,
            isJoined: enrolment != nil,
            tenantIdentifier: enrolment?.tenantIdentifier ?? configuredRules.tenantIdentifier
        )
    }

    /// The only function that changes the state. It decides, commits state, enrolment, ledger and log in one transaction, drops what belonged
    /// to the old epoch, and announces. It never suspends, so no other request runs in between.
    ///
    /// - Parameters:
    ///   - change: what happens to the enrolment in the same transaction; `nil` means that it stays.
    ///   - cause: who or what wants it, for the log.
    ///   - holder: the app that signs in. The answer gives it the account, so the ledger lists it as a holder from the start.
    /// - Throws: ``DeviceRefusal``, ``StoreError``; nothing has changed then.
    @discardableResult
    package func apply(
        _ event: DeviceEvent,
        enrolment change: Membership.Change? = nil,
        cause: String = "the broker",
        holder: String? = nil
    ) throws -> DeviceState {
        let enrolment = change.map(\.outcome) ?? enrolment
        let next = try machine.decide(event, in: state, rules: rules(with: enrolment))
        guard let next else {
            guard let change else { return state }
            // No session changes.
            try store.commit(
                nil,
                enrolment: change,
                from: stored,
                to: ledger,
                log: log + [change.entry(at: surroundings.now())]
            )
            wrote(ledger)
            self.enrolment = enrolment
            noteChange()
            return state
        }
        let now = surroundings.now()
        var ledger = ledger
        var entries: [AuditEntry] = []
        if state.account != nil, next.account == nil || next.account != state.account {
            let session = ledger.sessions[state.epoch]
            ledger.end(state.epoch, at: now)
            entries.append(
                AuditEntry(.signedOut, at: now, session: state.epoch, subject: session?.subject, detail: cause)
            )
            if ledger.sessions[state.epoch]?.outcome == .complete {
                entries.append(AuditEntry(.completed, at: now, session: state.epoch, detail: "no app held any data"))
            }
        }
        if let account = next.account, state.account == nil {
            let subject = try store.subject(of: account)
            ledger.begin(next.epoch, account: account, subject: subject, at: now)
            entries.append(AuditEntry(.signedIn, at: now, session: next.epoch, subject: subject, detail: cause))
            if let holder, ledger.hold(next.epoch, by: holder) {
                entries.append(AuditEntry(.held, at: now, session: next.epoch, app: holder))
            }
        }
        if next.mode != state.mode {
            entries.append(AuditEntry(.modeChanged, at: now, detail: "\(next.mode.rawValue), by \(cause)"))
        }
        entries.append(
            AuditEntry(
                .announced,
                at: now,
                session: next.account.map { _ in next.epoch },
                detail: "epoch \(next.epoch)"
            )
        )
        if let change { entries.append(change.entry(at: now)) }
        ledger.prune(keeping: Self.keptRounds)
        try store.commit(next, enrolment: change, from: stored, to: ledger, log: log + entries)
        // This transaction also writes the changes that were waiting.
        wrote(ledger)
        self.enrolment = enrolment
        let left = identity
        state = next
        tokens.enter(epoch: next.epoch)
        identity = nil
        standingAnswers.forget()
        surroundings.announce(next)
        wakeDebtors()
        scheduleExpiry()
        remind()
        noteChange()
        if let left {
            // The device stays signed out even if the provider fails.
            Task { [provider] in try? await provider.endSession(for: left) }
        }
        return next
    }

    /// How many complete rounds are kept for later questions.
    private static let keptRounds = 100

    // MARK: The disk

    /// Changes the ledger. It is on the disk when ``written()`` returns.
    func change(_ entries: [AuditEntry], _ body: (inout CleanupLedger) -> Void) {
        body(&ledger)
        log += entries
        noteChange()
    }

    /// Waits until the present ledger is on the disk. All callers that wait at the same time share one transaction.
    ///
    /// - Throws: ``StoreError``. The change stays in memory, and the next write includes it.
    func written() async throws {
        guard ledger != stored || !log.isEmpty else { return }
        try await withCheckedThrowingContinuation { continuation in
            waitingForDisk.append(continuation)
            scheduleWriting(after: nil)
        }
    }

    /// Writes the ledger soon, without making anybody wait: for changes that may be lost in a crash.
    func writeSoon() {
        guard !isWritingScheduled else { return }
        scheduleWriting(after: .milliseconds(200))
    }

    private func scheduleWriting(after delay: Duration?) {
        guard !isWritingScheduled || delay == nil else { return }
        isWritingScheduled = true
        Task {
            if let delay { try? await Task.sleep(for: delay) }
            write()
        }
    }

    private func write() {
        isWritingScheduled = false
        guard ledger != stored || !log.isEmpty else { return wrote(ledger) }
        do throws(StoreError) {
            try store.commit(nil, from: stored, to: ledger, log: log)
            wrote(ledger)
        } catch {
            surroundings.report("\(error)")
            let waiting = waitingForDisk
            waitingForDisk = []
            for continuation in waiting { continuation.resume(throwing: error) }
        }
    }

    private func wrote(_ ledger: CleanupLedger) {
        self.ledger = ledger
        stored = ledger
        log = []
        let waiting = waitingForDisk
        waitingForDisk = []
        for continuation in waiting { continuation.resume() }
    }

    // MARK: Changes to wait for

    func noteChange() {
        revision += 1
        standingAnswers.forget()
        let waiting = waitingForChange
        waitingForChange = [:]
        for continuation in waiting.values { continuation.resume() }
    }

    /// Waits until there is a revision later than `revision`, at most until `deadline`.
    func waitForChange(after revision: UInt64, until deadline: ContinuousClock.Instant) async {
        guard revision == self.revision, deadline > .now else { return }
        let number = nextWaiter
        nextWaiter += 1
        let alarm = Task {
            try? await Task.sleep(until: deadline, clock: .continuous)
            waitingForChange.removeValue(forKey: number)?.resume()
        }
        await withCheckedContinuation { waitingForChange[number] = $0 }
        alarm.cancel()
    }

    /// Announces again, at growing intervals, while an app that runs has not asked: a broadcast that it lost must not keep a round open.
    private func remind() {
        reminder?.cancel()
        reminder = Task {
            var pause = Duration.seconds(2)
            while (try? await Task.sleep(for: pause)) != nil {
                guard !ledger.unaware.isDisjoint(with: running) else { return }
                surroundings.announce(state)
                pause = min(pause * 2, .seconds(60))
            }
        }
    }

    /// Sets the timer that lets open rounds expire.
    private func scheduleExpiry() {
        expiry?.cancel()
        expiry = nil
        guard let timeout = policy.timeout.map({ $0 / .seconds(1) }) else { return }
        let now = surroundings.now()
        let expired = ledger.expire(timeout: timeout, at: now)
        if !expired.isEmpty {
            log += expired.map { epoch in
                let owing = ledger.report(of: epoch)?.owing.map(\.identifier).joined(separator: ", ") ?? ""
                return AuditEntry(.expired, at: now, session: epoch, detail: "still owing: \(owing)")
            }
            noteChange()
            scheduleWriting(after: nil)
        }
        let ends = ledger.openRounds.compactMap { ledger.sessions[$0]?.endedAt }
        guard let next = ends.min() else { return }
        let wait = min(60, max(0.01, timeout - now.timeIntervalSince(next)))
        expiry = Task {
            guard (try? await Task.sleep(for: .seconds(wait))) != nil else { return }
            scheduleExpiry()
        }
    }
}

/// The answers to “who is signed in?” of apps that owe nothing. Until something changes, the broker repeats them without its queue, which may
/// be waiting for the disk.
///
/// Each answer here says only what is on the disk. The broker forgets them all with each change, before it announces the change: an app that
/// hears the announcement and asks gets the new answer. An app that asks during the commit gets the old one, as if it had asked before.
package final class StandingAnswers: Sendable {
    private let answers = Locked<[String: DBusValue]>([:])

    /// The answer for an app, in the form that goes over the bus.
    package subscript(app: String) -> DBusValue? { answers.withLock { $0[app] } }

    /// The broker calls it on its queue, in the same step in which it finds the answer.
    func keep(_ answer: SessionAnswer, for app: String) {
        let fields = DBusValue.fields(answer.fields)
        answers.withLock { $0[app] = fields }
    }

    /// The broker calls it on its queue, in the same step as the change.
    func forget() { answers.withLock { $0 = [:] } }
}

/// Runs an actor on a queue of its own. The actor waits for the disk, and the threads of Swift's pool must not block.
final class QueueExecutor: SerialExecutor {
    private let queue: DispatchQueue

    init(_ label: String) { queue = DispatchQueue(label: label) }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }
}
