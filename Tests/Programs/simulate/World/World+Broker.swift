import BrokerCore
import DBus
import DeviceConfiguration
import Foundation
import Identity
@_spi(Extensions) import SharedDevice
import SharedDeviceBroker

/// The broker's shell. It feeds the reducer and performs its effects in order, as `BrokerEngine` and `BrokerService`
/// do.
extension World {
    // MARK: Start and end

    func startBroker() {
        guard broker == nil, isBusUp else { return }
        note("the broker starts")
        var content = StoredContent()
        (content.device, content.membership) = (disk.device, disk.membership)
        content.ledger = (mutant == .restartForgets ? VirtualDisk() : disk).ledger(at: now)
        content.noted = mutant == .noteIsNotRead ? nil : disk.laterState
        content.provider = disk.providerOwner?.epoch == disk.device.epoch ? disk.provider.map(read) : nil
        content.outbox = disk.outbox.mapValues { entry in
            ProviderOutbox.Entry(
                record: entry.record,
                keepsSession: entry.keepsSession,
                addedAt: entry.addedAt,
                tries: entry.tries,
                next: now.uptime
            )
        }
        var state = BrokerState(
            content,
            lastActivity: disk.lastActivity,
            requiresProof: hasManyUsers && mutant != .nobodyIsProven,
            // A seed means the same schedule in every time zone.
            localTime: LocalTime { _ in 0 },
            at: moment
        )
        // The oracle reads the state before the first event, when nothing is decided yet.
        oracle.started(&state, self)
        deadline = state.nextDeadline.map { $0 - waitShift }
        broker = state
        heardAsleep = now.asleep
        latest = nil
        // The bus reports which of the earlier connections are gone.
        var alive = Set(slots.filter { $0.isRunning && isBusUp }.map(\.connection))
        if enforcer != nil { alive.insert(slots[Self.enforcer].connection) }
        for connection in state.ledger.connections.subtracting(alive).sorted() {
            feed(.left(connection, mark: CleanupLedger.newMark()))
        }
        feed(.manifests(manifests))
        readConfiguration()
        feed(.busRestored)
        seat.restart()
    }

    /// The broker ends, and the pending work of its threads is lost.
    func killBroker(isPowerCut: Bool) {
        guard broker != nil || isPowerCut else { return }
        if !isPowerCut, stop == nil, random.chance(40) { endBroker() }
        note(isPowerCut ? "the power fails" : "the broker is killed")
        broker = nil
        deadline = nil
        stop = nil
        // The transaction in flight may be on the disk or not.
        if case .batch(let batch)? = jobs.first, diskMode == .works, random.chance(50) { disk.commit(batch) }
        jobs = []
        waitingNote = nil
        questions = []
        (seat.events, seat.heard) = ([], nil)
        loseAnswersOfProvider()
        starts = []
        if isPowerCut {
            if let synced { disk = synced }
            disk.cutPower { random.chance(50) }
        }
        known = []
        for index in slots.indices { slots[index].toBroker = [] }
        for (number, index) in unanswered.sorted(by: { $0.key < $1.key }) { slots[index].toApp.append(.failed(number)) }
        unanswered = [:]
        oracle.ended(isPowerCut: isPowerCut, self)
    }

    private func read(_ session: ProviderSession) -> ProviderSession {
        var session = session
        if mutant == .everyTokenIsUnused { session.isSettled = true }
        return session
    }

    /// The broker is asked to stop, and has time for some or all of its pending writes.
    private func endBroker() {
        note("the broker is to end")
        feed(.ending)
        for _ in 0..<random.below(4) where broker != nil && violation == nil { diskWorks() }
    }

    // MARK: Events

    /// The time as the broker's engine reads it.
    private var moment: Moment {
        var moment = now
        if mutant == .sleepIsUnseen { moment.asleep = .zero }
        moment.uptime += waitShift
        return moment
    }

    /// The lead of the broker's clock, if the deliberate mistake is to wait by the wall clock.
    private var waitShift: Duration { mutant == .clockMovesWaits ? max(.zero, clockShift) : .zero }

    func feed(_ event: Event) {
        guard var state = broker.take() else { return }
        if now.asleep > heardAsleep {
            heardAsleep = now.asleep
            oracle.woke(self)
            oracle.ends.disturbedAt = now.uptime
        }
        let before = state.device
        let effects = state.reduce(rewritten(event, state), at: moment)
        deadline = state.nextDeadline.map { $0 - waitShift }
        oracle.judgeLock(event, effects, state, self)
        oracle.after(event, effects, before, state, self)
        oracle.judgeProvider(event, effects, state, self)
        oracle.judgeSeat(event, effects, before, self)
        oracle.judgeUse(effects, state, self)
        oracle.judgeLength(effects, state, self)
        oracle.judgeWarning(effects, state, self)
        // The state is stored last, so that it is moved and not copied.
        broker = consume state
        for effect in ordered(effects, of: event) {
            if let stop {
                guard stop.effects > 0 else { return stop.isPowerCut ? cutPower() : killBroker(isPowerCut: false) }
                self.stop?.effects -= 1
            }
            perform(effect)
            if broker == nil || violation != nil { return }
        }
    }

    private func perform(_ effect: Effect) {
        switch effect {
        case .reply(let number, let result): reply(number, result.map(\.fields))
        case .noteState(let state):
            note("  the broker notes that no account is signed in, epoch \(state.epoch)")
            waitingNote = state
            takeNote()
        case .announce:
            note("  the broker broadcasts")
            oracle.announced(isNoted: diskMode != .standsStill || waitingNote == nil)
            for index in slots.indices where slots[index].isRunning && isBusUp && hears(index) {
                slots[index].toApp.append(.broadcast)
            }
        case .commit(let batch):
            note("  transaction \(batch.number) goes to the disk")
            jobs.append(.batch(rewritten(batch)))
            if mutant == .answersBeforeCommit { feed(.committed(batch.number)) }
        case .authenticate(let number, let credentials): questions.append(.authenticated(number, verdict(credentials)))
        case .issueToken(let number, _, let scopes):
            let token = AccessToken(value: "token \(number)", scopes: scopes, expiresAt: now.wall + 3600)
            questions.append(.issued(number, .success(token)))
        case .startService(let app, let name): starts.append((app, name))
        case .authorise(let number, _, _, _): questions.append(.authorised(number, false))
        case .findOperators(let names): questions.append(.operatorsFound(names: names, users: []))
        case .readLog(let number, _): questions.append(.logRead(number, .success([])))
        case .keepActivity(let date): jobs.append(.activity(date))
        case .endLogins, .allowShutdown, .journal, .note: break
        case .beginSignIn(let name, let start): organisation.questions.append(.begin(name, only: start.only?.subject))
        case .completeSignIn(let name, let handle, let person):
            organisation.questions.append(.complete(name, handle: handle, person: person))
        case .cancelSignIn(let handle): organisation.handles[handle] = nil
        case .renew(let number, let record, _, let mayBeUsed):
            organisation.questions.append(.renew(number, record, mayBeUsed: mayBeUsed))
        case .tellSessionEnd(let number, let record, _): organisation.questions.append(.end(number, record))
        // The simulation has no sign-ins on another device.
        case .pollSignIn: break
        }
    }

    /// Whether the process receives this broadcast. The broker repeats the broadcast of a sign-out to the connections
    /// that it knows and that have not called since.
    private func hears(_ index: Int) -> Bool {
        guard slots[index].lostBroadcasts > 0, broker?.device.account == nil, known.contains(slots[index].connection)
        else { return true }
        note("  process \(index) does not hear it")
        slots[index].lostBroadcasts -= 1
        slots[index].hasMissedBroadcast = true
        return false
    }

    /// Writes the pending note if the disk responds.
    func takeNote() {
        guard let state = waitingNote, diskMode != .standsStill else { return }
        waitingNote = nil
        oracle.hasNoted(state)
        if mutant != .noteIsNotWritten { disk.note(state, at: now.wall) }
    }

    private func reply(_ number: UInt64, _ result: Result<BrokerProtocol.Fields, Refusal>) {
        guard let index = unanswered.removeValue(forKey: number) else { return }
        switch result {
        case .success(let fields):
            note(
                "  reply \(number) to \(index): epoch \(fields["epoch"]?.unsignedValue.map(String.init) ?? "-")"
                    + (fields["account"] == nil ? "" : ", with an account")
            )
        case .failure(let refusal): note("  reply \(number) to \(index): \(refusal.code)")
        }
        if index == Self.service { return serviceHears(number, result) }
        if index == Self.prompt { return promptHears(number, result) }
        if index == Self.screen { return screenHears(result) }
        slots[index].toApp.append(.reply(number, result))
        if slots[index].process == nil, index != Self.enforcer { slots[index].toApp = [] }
    }

    private func verdict(_ credentials: SignInRequest) -> Result<AuthenticatedIdentity, IdentityError> {
        guard case .password(let username, let password?) = credentials,
            password.isEqual(to: Secret(Setting.rightPassword))
        else { return .failure(IdentityError(.invalidGrant, "the user name or the password is wrong")) }
        return .success(AuthenticatedIdentity(account: Setting.account(username), isAdministrator: true))
    }

    // MARK: Disk, provider and bus

    func diskWorks() {
        guard !jobs.isEmpty else { return }
        switch jobs.removeFirst() {
        case .activity(let date): if diskMode == .works { disk.keepActivity(date, isOldSynced: random.chance(50)) }
        case .configuration(let configuration): if diskMode == .works { kept = configuration }
        case .batch(let batch):
            if diskMode == .works {
                if mutant == .transactionIsNotSynced { synced = disk }
                disk.commit(batch)
                oracle.committed(batch, self)
                note("transaction \(batch.number) is on the disk")
                if mutant != .answersBeforeCommit { feed(.committed(batch.number)) }
            } else {
                disk.fail(batch)
                oracle.notCommitted(batch)
                note("transaction \(batch.number) fails")
                feed(.commitFailed(batch, Self.fullDisk))
            }
        }
    }

    func providerAnswers() {
        guard !questions.isEmpty else { return }
        let answer = questions.remove(at: random.below(questions.count))
        let failure = IdentityError(.providerFailed, "the provider cannot be reached")
        switch answer {
        case .authenticated(let number, _) where providerMode == .fails: feed(.authenticated(number, .failure(failure)))
        case .issued(let number, _) where providerMode == .fails: feed(.issued(number, .failure(failure)))
        default: feed(answer)
        }
    }

    /// The bus starts the app for each user who has data of it. A real bus starts it for its own user only.
    func busStarts() {
        let (app, _) = starts.removeFirst()
        var isNews = false
        for index in ownApps where slots[index].name == app && !slots[index].isRunning && random.chance(70) {
            startApp(index)
            isNews = true
        }
        feed(.serviceStarted(app: app, isNews ? .started : .running))
    }

    // MARK: The configuration

    /// The broker reads the file at its start and when the file changes.
    func readConfiguration() {
        guard broker != nil else { return }
        var problem: String?
        switch file {
        case .valid(let index):
            latest = .present(Setting.configurations[index])
            jobs.append(.configuration(Setting.configurations[index]))
        case .missing:
            latest = .missing
            jobs.append(.configuration(ManagedConfiguration()))
        case .broken: problem = "the file is broken"
        }
        let isIgnored =
            latest == nil
            && (mutant == .brokenConfigurationIsDefaults || mutant == .neverConfiguredIsDefaults && kept == nil)
        var policy = DevicePolicy(
            inForce: latest,
            kept: isIgnored ? Setting.defaults : kept,
            hasManyUsers: hasManyUsers
        )
        policy.problem = problem
        oracle.configured(latest, kept: kept, at: now.uptime)
        note("in force: \(policy.mode), \(policy.cleanup)\(policy.isConfigured ? "" : ", never configured")")
        if mutant == .policyIsAdvisory { policy.cleanup = .advisory }
        if mutant == .startForgetsLock {
            var other = policy
            (other.schedule.locked, other.lockedBefore) = (nil, false)
            feed(.configured(other))
        }
        feed(.configured(policy))
    }
}
