package import DBusTransport
import Dispatch
package import Foundation
import SharedDevice
import Synchronization

/// Holds the device's one account and the ledger of its cleanups. Every change of the account goes through ``apply(_:cause:)``: commit, then
/// bump the epoch, then announce (architecture, D9), so that whoever is told to ask gets the new answer.
package actor DeviceBroker {
    /// What the broker has others do. All of it is called on the broker's queue; none of it may wait for the broker.
    package struct Surroundings: Sendable {
        /// Tells all apps to ask. Called after each commit, before the next one can begin.
        package var announce: @Sendable (DeviceState) -> Void
        /// An app owes a cleanup and may not be running.
        package var wake: @Sendable (_ app: String) -> Void
        /// The ledger could not be written; it is tried again with the next change.
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
    /// What is the same for the next who asks.
    package nonisolated let standingAnswers = StandingAnswers()
    private let executor = QueueExecutor("org.notifycenter.SharedDeviceBroker")
    private(set) var state: DeviceState
    var tokens: TokenVault
    /// What the provider gave at sign-in; gone after a restart, when the account alone has to do.
    var identity: AuthenticatedIdentity?
    /// The sign-ins that nobody waits for any more, the last of them.
    var cancelledSignIns: [String] = []
    /// The last sign-in that had a number, and the session that it began.
    var lastSignIn: (request: String, epoch: UInt64)?
    /// Whether the next sign-in waits for the cleanup of the last session.
    var policy = CleanupPolicy()
    /// Which organisation the device has joined; `nil` for none.
    private(set) var enrolment: Membership?
    /// Who may sign in, by the managed configuration; ``rules`` has the enrolment in it too.
    var configuredRules = DeviceRules()

    /// Who holds whose data, as it is decided; it leads what is stored.
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
        // Whoever is signed in has a session, whatever wrote the state: otherwise nobody would take down who holds its data.
        if let account = state.account, ledger.sessions[state.epoch] == nil {
            ledger.begin(state.epoch, account: account, subject: nil, at: surroundings.now())
        }
        self.ledger = ledger
        tokens = TokenVault(epoch: state.epoch)
    }

    /// The state that was committed last.
    package var current: DeviceState { state }

    /// Tells all apps to ask, though nothing changed, and wakes those that owe a cleanup: after a start or a loss of the bus they may have
    /// missed something.
    package func announceAgain() {
        surroundings.announce(state)
        wakeDebtors()
        remind()
    }

    /// Has those who owe a cleanup started, as far as they can be.
    package func wakeDebtors() { for app in ledger.debtors { surroundings.wake(app) } }

    /// Puts another policy in force, for the rounds that are open too.
    package func use(_ policy: CleanupPolicy) {
        self.policy = policy
        scheduleExpiry()
        noteChange()
    }

    /// Who may sign in. An enrolment decides whose users: what the configuration names is for joining.
    var rules: DeviceRules { rules(with: enrolment) }

    private func rules(with enrolment: Membership?) -> DeviceRules {
        DeviceRules(
            requiresJoin: configuredRules.requiresJoin,
            isJoined: enrolment != nil,
            tenantIdentifier: enrolment?.tenantIdentifier ?? configuredRules.tenantIdentifier
        )
    }

    /// The one way to another state: decides, commits state, enrolment, ledger and log in one transaction, drops what belonged to the old
    /// epoch, announces. It has no point at which another request could come in between.
    ///
    /// - Parameters:
    ///   - change: what becomes of the enrolment with it; `nil` for nothing.
    ///   - cause: who or what wants it, for the log.
    ///   - holder: the app that signs in, which is given the account by the answer: it holds data of the session from its beginning.
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
            // Nobody's session is touched by it.
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
        // What waited to be written is written with it.
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
            // The device is signed out whatever the provider makes of it.
            Task { [provider] in try? await provider.endSession(for: left) }
        }
        return next
    }

    /// How many complete rounds stay for whoever asks.
    private static let keptRounds = 100

    // MARK: The disk

    /// Changes the ledger. It is on the disk when ``written()`` returns.
    func change(_ entries: [AuditEntry], _ body: (inout CleanupLedger) -> Void) {
        body(&ledger)
        log += entries
        noteChange()
    }

    /// Waits until the ledger as it is now is on the disk. All who wait at a time share one transaction.
    ///
    /// - Throws: ``StoreError``; the change is still there, and written with the next.
    func written() async throws {
        guard ledger != stored || !log.isEmpty else { return }
        try await withCheckedThrowingContinuation { continuation in
            waitingForDisk.append(continuation)
            scheduleWriting(after: nil)
        }
    }

    /// For what need not be on the disk before anybody goes on: it is written soon, or with the next that does.
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

    /// Waits for a revision after `revision`, at most until `deadline`.
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

    /// Announces again, ever more rarely, as long as an app that runs has not asked: a broadcast that one of them lost must not keep a round
    /// open.
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

    /// Sees to it that open rounds expire when their time is over.
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

/// What apps were answered that asked who is signed in and owe nothing, for as long as nothing changes: the same question is then answered
/// without the broker's queue, which may wait for the disk.
///
/// Only what is on the disk is in here. The broker forgets all of it with each change, before it announces any: whoever is told to ask gets
/// the new answer. Who asks while a change is being committed gets the old one, as if asked before.
package final class StandingAnswers: Sendable {
    private let answers = Locked<[String: DBusValue]>([:])

    /// The answer for an app, as it travels.
    package subscript(app: String) -> DBusValue? { answers.withLock { $0[app] } }

    /// On the broker's queue, in one step with the finding of the answer.
    func keep(_ answer: SessionAnswer, for app: String) {
        let fields = DBusValue.fields(answer.fields)
        answers.withLock { $0[app] = fields }
    }

    /// On the broker's queue, in one step with the change.
    func forget() { answers.withLock { $0 = [:] } }
}

/// Runs an actor on a queue of its own, because what it does waits for the disk, and the threads that tasks share must not.
final class QueueExecutor: SerialExecutor {
    private let queue: DispatchQueue

    init(_ label: String) { queue = DispatchQueue(label: label) }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }
}
