package import DeviceConfiguration
package import FoundationEssentials
import Identity
import Logging
import SharedDevice

/// All that the broker knows and decides: `reduce` takes what happens and returns what is to be done about it. Pure: it asks no clock, no disk
/// and no bus, so that a test or a simulation can drive it through every order of events.
///
/// Two rules hold throughout (architecture, D9 and D10). An app is given an account only after the disk has it that the app may hold its data,
/// and somebody is signed in only after the disk says so. A sign-out waits for nobody: account and tokens are withheld and all apps are told at
/// once, and the disk follows.
package struct BrokerState: Sendable {
    // MARK: The device

    package internal(set) var device: DeviceState
    package internal(set) var membership: Membership?
    package internal(set) var policy = DevicePolicy()
    package internal(set) var manifests: [AppManifest] = []
    /// Why others are not in force.
    var manifestProblems: [String] = []
    /// Manifests that nobody could read so far.
    var unknownManifests: [String] = []
    var eligibility = AppEligibility()
    let requiresProof: Bool
    package internal(set) var ledger: CleanupLedger
    var tokens = TokenVault()
    /// What is under way with the organisation's provider.
    var provider = Provider()
    /// What the organisation's provider said last of this device.
    package internal(set) var compliance: ComplianceWord?
    /// The sign-in whose session is being written to the disk.
    var pending: PendingSignIn?
    /// The session that was begun last, and the request that began it.
    var lastSignIn: (label: String, connection: String, epoch: UInt64)?

    // MARK: Who asks

    /// A connection, and the apps that it has said it is.
    struct Connected: Sendable {
        let caller: Caller
        /// By the name that the caller gave. One process may be several apps.
        var apps: [String?: Participant] = [:]
        /// The change that the disk has to have before it is given the account.
        var held: UInt64 = 0
    }

    var connected: [String: Connected] = [:]
    /// Requests that wait for a change, for the disk or for a time.
    var waiting = WaitingRequests()
    /// Requests that wait for the identity provider.
    var asked: [UInt64: Asked] = [:]
    /// Requests that wait for polkit, or for entries of the log to be read.
    var consulted: [UInt64: Consulted] = [:]
    var operators = KnownOperators()
    /// Sign-ins that prompts have begun, by their names.
    var prompts: [String: PromptedSignIn] = [:]
    var throttle = PasswordThrottle()
    var refusals = LogLimiter()
    var reports = LogLimiter(limit: 60)
    /// How many entries of each session each app has brought about again and again.
    var repeatedEntries: [UInt64: [Participant: Int]] = [:]

    // MARK: Time

    /// The present event's time.
    var now: Moment
    var schedule: (epoch: UInt64, schedule: SignOutSchedule, nextLook: Duration?)?
    var reminder: (at: Duration, pause: Duration, isForAll: Bool)?
    var wakes: [String: Wake] = [:]
    var watch = SeatWatch()
    /// When somebody used the device last, before this run of the broker.
    var lastActivity: Date?

    /// Cleanups that apps have not done in time.
    var enforcement = Enforcement()

    // MARK: The disk

    var disk = Disk()
    var isDeviceDirty = false
    var isMembershipDirty = false
    var isProviderDirty = false
    var isComplianceDirty = false
    var erases = false
    var log: [AuditEntry] = []
    /// Grows with each change that somebody may wait for.
    package internal(set) var revision: UInt64 = 0
    var isTouched = false
    /// What was wrong after the last event.
    var problems: [String] = []
    /// What is wrong with keys, as whoever has them says.
    var keyTroubles: [String] = []
    /// Why records of the organisation's provider that a start has found could not be opened.
    var recordProblem: String?
    var effects: [Effect] = []

    /// - Parameters:
    ///   - content: what the store holds.
    ///   - lastActivity: when somebody used the device last; `nil` if nobody knows.
    ///   - requiresProof: whether more than one user reaches the bus.
    package init(
        _ content: DeviceStore.Content = DeviceStore.Content(),
        lastActivity: Date? = nil,
        requiresProof: Bool = false,
        at now: Moment
    ) {
        device = content.device
        membership = content.membership
        ledger = content.ledger
        compliance = content.compliance
        recordProblem = Self.recordProblem(content.recordProblems)
        self.lastActivity = lastActivity
        self.requiresProof = requiresProof
        self.now = now
        // Without a session in the ledger, nobody would record who holds the account's data.
        if let account = device.account, ledger.sessions[device.epoch] == nil {
            ledger.begin(device.epoch, account: account, at: now)
        }
        provider.outbox = ProviderOutbox(entries: content.outbox)
        if device.account != nil, let session = content.provider { resumeProviderSession(session) }
        identifyAnew()
        if let noted = content.noted, noted.state.epoch > device.epoch {
            self.now.wall = min(noted.date, now.wall)
            enter(noted.state, cause: "what the broker had noted before this start")
            self.now = now
        }
        // The journal has a line of that, too; everybody is told as soon as the broker has its name on the bus.
        effects = effects.filter { if case .journal = $0 { true } else { false } }
    }

    /// Takes one event.
    ///
    /// - Returns: what is to be done, in this order.
    package mutating func reduce(_ event: Event, at now: Moment) -> [Effect] {
        let hasSlept = now.asleep - self.now.asleep >= Self.leastSleep
        self.now = now
        // Whatever event is the first one after a sleep.
        if hasSlept { wakeWithinGrace() }
        // What is due comes before the event: a round that has expired holds up no sign-in.
        passTime()
        if hasSlept { askAfterSleep() }
        switch event {
        case .arrived(let caller):
            // One that was kept through an outage is the same process, whatever a second look at it has found.
            if connected[caller.connection] == nil { connected[caller.connection] = Connected(caller: caller) }
        case .left(let connection, let mark): leave(connection, mark: mark)
        case .busLost(let mark):
            provider.isReachable = false
            // The broker may be alone in having left the bus, and what the enforcement deletes must not be the next person's. Who has not called since
            // the broker's start may be it.
            let claimants = Set(ledger.claims.values.map(\.connection))
            for connection in connected.keys.sorted() {
                if claimants.contains(connection) {
                    abandonRequests(of: connection)
                } else {
                    leave(connection, mark: mark)
                }
            }
        case .busRestored:
            provider.isReachable = true
            announce(modeChanged: false)
        case .request(let request): take(request)
        case .malformed(let connection, let method, let refusal):
            noteRefusal(refusal, method: method, app: "an app", user: connected[connection]?.caller.user ?? .max)
        case .authenticated(let number, let result): authenticated(number, result)
        case .issued(let number, let result): issued(number, result)
        case .committed(let number):
            disk.committed = max(disk.committed, number)
            if disk.writing?.log.isEmpty == false { disk.logWrites += 1 }
            disk.writing = nil
            disk.problem = nil
            isTouched = true
        case .commitFailed(let batch, let problem): commitFailed(batch, problem)
        case .configured(let policy): configure(policy)
        case .manifests(let manifests, let problems, let unknown): use(manifests, problems, unknown)
        case .serviceStarted(let app, let outcome): serviceStarted(app, outcome)
        case .authorised(let number, let isGranted): authorised(number, isGranted)
        case .operatorsFound(let names, let users): operatorsFound(names, users)
        case .logRead(let number, let result): logRead(number, result)
        case .login(let event): login(event)
        case .seat(let seat): look(at: seat)
        case .loginsEnded(let identifiers, let problem): loginsEnded(identifiers, problem)
        case .signInBegan(let name, let result): signInBegan(name, result)
        case .signedIn(let name, let result): signedIn(name, result)
        case .renewed(let number, let outcome): renewed(number, outcome)
        case .sessionEndTold(let number, let error): sessionEndTold(number, error)
        case .keys(let troubles): keyTroubles = troubles
        case .time: break
        case .ending:
            provider.isEnding = true
            urge()
        }
        followSeat()
        finishSignIn()
        forgetHeard()
        writeIfDue()
        noteProblems()
        answerWaiting()
        askProvider()
        writeIfDue()
        defer { effects = [] }
        return effects
    }

    // MARK: Changes of the device

    /// Who may sign in. On a device that has joined an organisation, the membership names the tenant; the tenant of the configuration then
    /// matters for joining only.
    var rules: SignInRules {
        SignInRules(
            requiresJoin: policy.requiresJoin,
            isJoined: membership != nil,
            tenantIdentifier: membership?.tenantIdentifier ?? policy.tenantIdentifier
        )
    }

    /// Makes `next` the device's state at once, and tells everybody.
    ///
    /// - Parameter cause: who or what wants it, for the log.
    mutating func enter(_ next: DeviceState, cause: String) {
        let before = device
        if let account = before.account, next.account == nil {
            ledger.end(before.epoch, at: now)
            enterLog(.signedOut, session: before.epoch, account: account, detail: cause)
            noteCompletion(before.epoch, detail: "no app held any data")
            if next.mode == .shared { loginIsSpent(before.epoch) }
        }
        if next.mode != before.mode { enterLog(.modeChanged, detail: "\(next.mode.rawValue), by \(cause)") }
        enterLog(.announced, session: next.account.map { _ in next.epoch }, detail: "epoch \(next.epoch)")
        device = next
        isDeviceDirty = true
        tokens.drop()
        if next.account == nil { closeProviderSession() }
        prune()
        needsDisk(within: .zero)
        if next.account == nil {
            effects.append(.noteState(next))
            // Tried at once, also on a disk that has just failed: what was noted has to get there at least.
            disk.due = now.uptime
        }
        announce(modeChanged: next.mode != before.mode)
        touch()
    }

    /// Tells all apps to ask: after a change, and after a start and an outage, in which they may have missed a broadcast.
    private mutating func announce(modeChanged: Bool) {
        effects.append(.announce(modeChanged: modeChanged))
        remind()
        lookAtSchedule()
        wakeDebtors()
    }

    private mutating func configure(_ policy: DevicePolicy) {
        let before = self.policy
        self.policy = policy
        if before.identity != policy.identity || before.organisation?.signInPart != policy.organisation?.signInPart {
            endPrompts(because: .noSuchPrompt)
            // Another directory or provider than the one that has checked the person.
            if pending?.asked != nil {
                dropPendingSignIn(because: policy.identity == .loginSession ? .signedInByLogin : .noSuchPrompt)
            }
        }
        if before != policy { identifyAnew() }
        if before.operators != policy.operators || before.operatorNames != policy.operatorNames {
            operatorsFound(policy.operatorNames, policy.operators)
        }
        let mode = policy.isConfigured ? policy.mode : device.mode
        if pending?.next.under(mode, rules) != nil {
            dropPendingSignIn(because: mode == .shared ? .tenantMismatch : .notSharedDevice)
        }
        checkPendingSignIn()
        checkKindOfAccount()
        if let next = device.under(mode, rules) { enter(next, cause: "the managed configuration") }
        schedule?.schedule.settings = policy.schedule
        lookAtSchedule()
        touch()
    }

    /// The device's membership has changed. An account that the new rules do not admit is signed out.
    mutating func changeMembership(to next: Membership?, by account: Account) {
        enterLog(next == nil ? .left : .joined, account: account, detail: next.map { "tenant \($0.tenantIdentifier)" })
        membership = next
        isMembershipDirty = true
        dropPendingSignIn(because: next == nil ? .deviceNotJoined : .tenantMismatch)
        if next == nil, device.account != nil {
            enter(device.next(mode: device.mode, account: nil), cause: "the device's leaving")
        } else if let state = device.under(device.mode, rules) {
            enter(state, cause: "the device's joining")
        }
        needsDisk(within: .zero)
        touch()
    }

    mutating func signOutAutomatically(because reason: String) {
        dropPendingSignIn(because: .requestAbandoned)
        guard let next = try? device.signingOut(nil) else { return }
        enter(next, cause: reason)
        effects.append(.note(.notice, "signed out automatically", ["reason": reason]))
    }

    mutating func touch() {
        revision += 1
        isTouched = true
    }

    // MARK: Time

    /// When the broker wants to be woken, at the latest; `nil` means never.
    package var nextDeadline: Duration? {
        var next: Duration?
        func consider(_ time: Duration?) { if let time, next.map({ time < $0 }) ?? true { next = time } }
        consider(waiting.deadline)
        if disk.writing == nil { consider(disk.due) }
        consider(schedule?.nextLook)
        consider(reminder?.at)
        consider(refusals.nextSummary)
        consider(reports.nextSummary)
        consider(nextLookAtSeat)
        for wake in wakes.values { consider(wake.next) }
        consider(nextLookAtPrompts)
        consider(nextLookAtProvider)
        consider(nextDue)
        if let timeout = policy.cleanup.expiry {
            for round in ledger.openRounds { consider((round.ended ?? now.uptime) + timeout) }
        }
        return next
    }

    private mutating func passTime() {
        noteOverdue()
        if let timeout = policy.cleanup.expiry {
            for number in ledger.expire(timeout: timeout, at: now) {
                let owing = ledger.report(of: number)?.owing.map(\.identifier).joined(separator: ", ") ?? ""
                enterLog(.expired, session: number, detail: "still owing: \(owing)")
                needsDisk(within: .zero)
                touch()
            }
        }
        if let look = schedule?.nextLook, look <= now.uptime { lookAtSchedule() }
        if let look = nextLookAtSeat, look <= now.uptime { followSeat() }
        lookAtPrompts()
        endOfflineSession()
        remindIfDue()
        if !wakes.isEmpty {
            let due = wakes.filter { $0.value.next.map { $0 <= now.uptime } ?? false }
            for app in due.keys.sorted() { startService(app) }
        }
        for summary in refusals.summaries(at: now.uptime) {
            enterLog(.refused, app: summary.app, detail: summary.detail)
        }
        for summary in reports.summaries(at: now.uptime) {
            enterLog(.reported, app: summary.app, detail: summary.detail)
        }
    }
}
