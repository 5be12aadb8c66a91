package import DeviceConfiguration
package import FoundationEssentials
package import Identity
import Logging
package import SharedDevice

/// The broker's state and its decisions: ``reduce(_:at:)`` takes an event and returns the effects to carry out. It
/// routes the event to the features and applies their decisions. Only this type changes the facts.
///
/// It uses no clock, disk or bus, so that a test or a simulation can drive it through every order of events.
///
/// Two rules always hold (architecture, D9 and D10):
///
/// - An app receives an account only after the ledger entry that the app may hold its data is committed. A person is
///   signed in only after the session is committed.
/// - A sign-out does not wait: account and tokens are withheld and all apps are told at once. The commit follows.
package struct BrokerState: Sendable {
    var facts: Facts

    // MARK: Features

    var administration = Administration()
    var automaticSignOut: AutomaticSignOut
    var directoryTokens = DirectoryTokens()
    var enforcement = Enforcement()
    var logQuota = LogQuota()
    var provider: ProviderLink
    var screen: ScreenLock
    var seat = SeatWatch()
    var signIns = SignIns()
    var wakeups = Wakeups()

    // MARK: Requests

    /// Grows with each change that a request may wait for.
    package internal(set) var revision: UInt64 = 0
    var isTouched = false
    /// The latest session, with the label and the connection of the request that began it.
    var lastSignIn: (label: String, connection: String, epoch: UInt64)?
    var problems: [String] = []
    /// Why the other manifests are not in force.
    var manifestProblems: [String] = []
    /// Problems with keys, as reported by ``Event/keys(_:)``.
    var keyTroubles: [String] = []
    var certificates: [DeviceCertificate] = []

    // MARK: Output

    var unsaved = UnsavedRows<StoredRow>()
    var log: [AuditEntry] = []
    var effects: [Effect] = []

    package var providerRecord: ProviderRecord? { provider.session?.record }
    package var device: DeviceState { facts.device }
    package var membership: Membership? { facts.membership }
    package var policy: DevicePolicy { facts.policy }
    /// When the session ends by itself; `nil` if no session is open, or if it does not.
    package var sessionEnd: SessionEnd? {
        automaticSignOut.end.map { end in
            let locks = end.reason == .inactivity && policy.schedule.locked != nil && screen.isThere
            return SessionEnd(at: end.at, reason: end.reason, isSoon: end.isSoon, locks: locks)
        }
    }
    package var ledger: CleanupLedger { facts.ledger }
    var now: Moment { facts.now }
    var manifests: [AppManifest] { facts.manifests }
    package var eligibility: AppEligibility { facts.eligibility }
    var connected: [String: Facts.Connected] { facts.connected }
    var pending: Facts.PendingSession? { facts.pending }
    var disk: Facts.Disk { facts.disk }

    /// - Parameter lastActivity: When the device was last used; `nil` if unknown.
    package init(
        _ content: StoredContent = StoredContent(),
        lastActivity: Date? = nil,
        requiresProof: Bool = false,
        localTime: LocalTime = .device,
        at now: Moment
    ) {
        facts = Facts(
            now: now,
            device: content.device,
            membership: content.membership,
            requiresProof: requiresProof,
            ledger: content.ledger,
            compliance: content.compliance
        )
        provider = ProviderLink(content, isSignedIn: content.device.account != nil, at: now)
        automaticSignOut = AutomaticSignOut(lastActivity: lastActivity, localTime: localTime)
        screen = ScreenLock(resuming: content.device.account == nil ? nil : content.device.epoch)
        // Without a session in the ledger, the apps that hold the account's data would not be recorded.
        if let account = device.account, ledger.sessions[device.epoch] == nil {
            facts.ledger.begin(device.epoch, account: account, at: now)
        }
        identifyAnew()
        if let noted = content.noted, noted.state.epoch > device.epoch {
            facts.now.wall = min(noted.date, now.wall)
            enter(noted.state, cause: "what the broker had noted before this start")
            facts.now = now
        }
        // Only the journal has to match the log. Apps are told as soon as the broker has its name on the bus.
        effects = effects.filter { if case .journal = $0 { true } else { false } }
    }

    /// The shortest suspension that counts as sleep. The clocks are read within a tenth of that.
    static let leastSleep = Duration.seconds(1)

    /// Processes one event, and returns the effects to carry out, in this order.
    package mutating func reduce(_ event: Event, at now: Moment) -> [Effect] {
        let hasSlept = now.asleep - self.now.asleep >= Self.leastSleep
        facts.now = now
        // Any event can be the first one after a sleep.
        if hasSlept { provider.wake(facts) }
        // Expired deadlines come before the event: an expired round must not delay a sign-in.
        passTime()
        if hasSlept { provider.askSoon(facts, isCounted: false) }
        switch event {
        case .arrived(let caller):
            // A connection that was kept through a loss of the bus is the same process.
            if connected[caller.connection] == nil {
                facts.connected[caller.connection] = Facts.Connected(caller: caller)
            }
        case .left(let connection, let mark): leave(connection, mark: mark)
        case .busLost(let mark):
            provider.isReachable = false
            // Perhaps only the broker has lost the bus, and an enforcement program still deletes data. Its claim stays,
            // so that the next person's data is not deleted.
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
            let user = connected[connection]?.caller.user ?? .max
            apply(logQuota.refused(refusal, method: method, app: "an app", user: user, facts))
        case .authenticated(let number, let result): apply(signIns.authenticated(number, result, facts))
        case .issued(let number, let result):
            apply(directoryTokens.issued(number, result, facts) ?? signIns.issued(number, result))
        case .committed(let number): committed(number)
        case .commitFailed(let batch, let problem):
            commitFailed(batch, problem)
            if let pending, pending.change <= batch.number { dropPendingSignIn(because: .failed(problem)) }
        case .configured(let policy): configure(policy)
        case .manifests(let manifests, let problems, let unknown): use(manifests, problems, unknown)
        case .serviceStarted(let app, let outcome): apply(wakeups.started(app, outcome, facts))
        case .authorised(let number, let isGranted): apply(administration.authorised(number, isGranted, facts))
        case .operatorsFound(let names, let users): apply(administration.operatorsFound(names, users, facts))
        case .logRead(let number, let result): apply(administration.logRead(number, result, facts))
        case .login(let event): apply(seat.heard(event, facts))
        case .seat(let seat): self.seat.look(at: seat, facts)
        case .loginsEnded(let identifiers, let problem): apply(seat.loginsEnded(identifiers, problem))
        case .signInBegan(let name, let result): apply(signIns.signInBegan(name, result, facts))
        case .signedIn(let name, let result): apply(signIns.signedIn(name, result, facts))
        case .renewed(let number, let outcome): apply(provider.renewed(number, outcome, facts))
        case .sessionEndTold(let number, let error): apply(provider.sessionEndTold(number, error, facts))
        case .keys(let troubles): keyTroubles = troubles
        case .badges(let areThere):
            if areThere != facts.hasBadges { touch() }
            facts.hasBadges = areThere
        case .certificates(let certificates):
            if certificates != self.certificates { touch() }
            self.certificates = certificates
        case .time: break
        case .ending:
            provider.isEnding = true
            urge()
        }
        settle()
        defer { effects = [] }
        return effects
    }

    /// Carries out what follows from the event, until nothing is left.
    private mutating func settle() {
        repeat {
            followSeat()
            finishSignIn()
            writeIfDue()
            if facts.waiting.isStatusAwaited { noteProblems() }
            if screen.isThere { noteScreen() }
            answerWaiting()
            apply(provider.ask(during: signIns.firstBegan(facts), facts))
        } while isTouched || isWriteDue
    }

    // MARK: Decisions

    mutating func apply(_ decisions: [Decision]) {
        for decision in decisions {
            switch decision {
            case .perform(let effect): effects.append(effect)
            case .persist(let row, let delay):
                if let row { unsaved.insert(row) }
                guard let delay else { continue }
                let change = needsDisk(within: delay)
                if row == .provider, delay == .zero { provider.change = change }
            case .end(let cause): signOutAutomatically(because: cause)
            case .lockScreen(let cause): apply(screen.lock(because: cause, facts))
            case .lock(let lock): use(lock)
            case .log(let event, let session, let participant, let app, let detail):
                enterLog(event, session: session, participant: participant, app: app, detail: detail)
            case .logRepeatable(let event, let kind, let session, let participant, let detail):
                enterRepeatable(event, kind, session, participant, detail: detail)
            case .beginSession(let next, let detail): write(next, of: nil, detail: detail)
            case .dropSignIn(let refusal): dropPendingSignIn(because: refusal)
            case .begin(let attempt):
                do throws(Refusal) {
                    try begin(attempt)
                } catch {
                    takeBack(attempt, because: error)
                }
            case .discard(let signIn): apply(provider.tellLater(signIn.record, facts))
            case .comply(let word):
                facts.compliance = word
                unsaved.insert(.compliance)
                change()
                guard let problem = facts.complianceProblem else { continue }
                effects.append(.note(.error, "users cannot sign in", ["reason": problem.description]))
                dropPendingSignIn(because: problem)
                apply(signIns.endPrompts(because: problem))
                signOutAutomatically(because: "the provider says that this device does not comply")
            case .administer(let request, let account):
                facts.waiting[request.number] = nil
                respond(to: request) { state throws(Refusal) in try state.administer(request, as: account) }
            case .refuse(let request, let refusal): refuse(request, refusal)
            case .handOver(let request, let participant, let grant):
                respond(to: request) { state throws(Refusal) in try state.handOver(request, participant, grant) }
            case .wait(let request, let until, let reason): wait(request, until: until, for: reason)
            case .respond(let number, let response): reply(number, response)
            case .abandon(let number): if facts.waiting[number] != nil { abandon(number) }
            case .checkWaiting: isTouched = true
            case .touch: touch()
            case .claim(let participant, let claim):
                facts.ledger.claim(participant, claim)
                change()
            case .release(let participants):
                guard !participants.isEmpty else { continue }
                for participant in participants {
                    facts.ledger.claim(participant, nil)
                    wakeups.claimEnded(of: participant.app, facts)
                }
                effects.append(.announce(modeChanged: false))
                change()
            case .enforced(let participant, let detail):
                for session in facts.ledger.enforce(participant, detail: detail, at: now) {
                    noteSettled(.enforced, session, participant, detail: detail)
                }
            }
        }
    }

    // MARK: Reactions

    private mutating func configure(_ policy: DevicePolicy) {
        let before = self.policy
        facts.policy = policy
        if before.identity != policy.identity || before.organisation?.signInPart != policy.organisation?.signInPart {
            // The person was checked by another directory or provider than the configured one.
            if pending?.attempt != nil {
                dropPendingSignIn(because: policy.identity == .loginSession ? .signedInByLogin : .noSuchPrompt)
            }
            apply(signIns.endPrompts(because: .noSuchPrompt))
        }
        if before != policy { identifyAnew() }
        if before.operators != policy.operators || before.operatorNames != policy.operatorNames {
            apply(administration.operatorsFound(policy.operatorNames, policy.operators, facts))
        }
        let mode = policy.isConfigured ? policy.mode : device.mode
        if let next = pending?.next, next.under(mode, facts.rules) != nil {
            dropPendingSignIn(
                because: mode == .shared ? next.refusal(facts.rules) ?? .tenantMismatch : .notSharedDevice
            )
        }
        checkPendingSignIn()
        seat.configure(facts)
        apply(screen.configure(facts))
        apply(provider.configure(facts))
        apply(seat.checkKindOfAccount(facts))
        let isBarred = device.refusal(facts.rules)?.code == .userNotAllowed
        let cause = "the managed configuration" + (isBarred ? ": the user is not allowed any more (allowedUsers)" : "")
        if let next = device.under(mode, facts.rules) { enter(next, cause: cause) }
        apply(automaticSignOut.look(facts))
        touch()
    }

    /// Follows the login at the seat, and ends login sessions and allows a shutdown when these are due.
    private mutating func followSeat() {
        apply(seat.endLogins(facts))
        apply(seat.allowShutdown(facts))
        let former = seat.user(facts)
        apply(seat.noticeDeparture(of: former, facts))
        apply(seat.noticeArrival(after: former, facts))
    }

    // MARK: Time

    /// The latest time at which the broker has to be woken; `nil` means never.
    package var nextDeadline: Duration? {
        var next: Duration?
        func consider(_ time: Duration?) { if let time, next.map({ time < $0 }) ?? true { next = time } }
        consider(facts.waiting.deadline)
        if disk.writing == nil { consider(disk.due) }
        consider(automaticSignOut.next)
        consider(wakeups.next)
        consider(logQuota.next)
        consider(screen.next(facts))
        consider(seat.next(facts))
        consider(signIns.next)
        consider(provider.next(facts))
        consider(enforcement.next(facts))
        if let timeout = policy.cleanup.expiry {
            for round in ledger.openRounds { consider((round.ended ?? now.uptime) + timeout) }
        }
        return next
    }

    private mutating func passTime() {
        apply(enforcement.passTime(facts))
        if let timeout = policy.cleanup.expiry {
            for number in facts.ledger.expire(timeout: timeout, at: now) {
                let owing = ledger.report(of: number)?.owing.map(\.identifier).joined(separator: ", ") ?? ""
                enterLog(.expired, session: number, detail: "still owing: \(owing)")
                change()
            }
        }
        apply(automaticSignOut.passTime(facts))
        apply(screen.passTime(facts))
        if let look = seat.next(facts), look <= now.uptime { followSeat() }
        apply(signIns.passTime(facts))
        apply(provider.passTime(facts))
        apply(wakeups.passTime(facts))
        apply(logQuota.passTime(facts))
    }
}
