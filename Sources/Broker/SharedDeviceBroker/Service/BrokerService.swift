import Basics
import BrokerCore
package import DBus
import DBusService
import DeviceConfiguration
package import DeviceStorage
import Dispatch
import FoundationEssentials
import Glibc
package import Identity
package import Logging
import NotifyCenter
@_spi(Extensions) import SharedDevice
import Synchronization

/// The broker as a service on a bus: store, providers, configuration and D-Bus interface around one ``BrokerState``.
package final class BrokerService: Sendable {
    package struct Options: Sendable {
        package var bus: Bus
        package var stateDirectory: String
        package var configurationFile: String
        package var loginBus: Bus
        /// Whether several users reach the bus. Then, by default, only apps with a manifest take part.
        package var hasManyUsers: Bool
        package var runtimeDirectory: String?

        package init(
            bus: Bus,
            stateDirectory: String,
            configurationFile: String,
            loginBus: Bus = .system,
            hasManyUsers: Bool? = nil,
            runtimeDirectory: String? = nil
        ) {
            (self.bus, self.loginBus, self.hasManyUsers) = (bus, loginBus, hasManyUsers ?? (bus == .system))
            (self.stateDirectory, self.runtimeDirectory) = (stateDirectory, runtimeDirectory)
            self.configurationFile = configurationFile
        }
    }

    let options: Options
    let engine: BrokerEngine
    let store: DeviceStore
    private let lock: ServiceLock
    let connection: DBusConnection
    let center: DarwinNotifyCenter
    let callers: Callers
    let interface: BrokerInterface
    let provider: any IdentityProvider
    let organisation: any OrganisationProvider
    /// One thread, so that batches are written in order.
    let disk = Workers(label: "disk", count: 1, capacity: 64)
    let notes = Workers(label: "notes", count: 1, capacity: 64)
    let memoryNotes = Workers(label: "notes in memory", count: 1, capacity: 64)
    let reads = Workers(label: "reads", count: 1, capacity: 64)
    private let certificates = DispatchQueue(label: "SharedDeviceBroker.certificates")
    let activity: ActivityFile
    /// The configuration that was valid before the broker started.
    private let kept: Data?
    /// Valid settings that are not on the disk yet.
    private let unkept = Locked(KeptSettings())
    /// The manifests on the disk, including those of the write in flight.
    private let keptManifests: Locked<[String: Data]>
    private let updates: AsyncStream<ManagedConfigurationUpdate>
    private let manifests: AsyncStream<AppManifests>
    let login = Locked<LoginWatch?>(nil)
    private let observations = Locked<[Observation]>([])
    let log: Logger

    /// Starts the service: on return it owns its name and answers calls, under the current configuration.
    ///
    /// - Parameters:
    ///   - organisation: Creates the organisation's provider from the connection that owns the broker's name.
    ///   - sealer: Seals the provider's records on the disk. With `nil`, a restart loses them.
    /// - Throws: ``StoreError``, ``ManagedConfigurationError`` or ``DBusError``; `nameTaken` if another broker is on
    ///   this bus.
    package init(
        _ options: Options,
        database: DeviceDatabase,
        provider: any IdentityProvider,
        organisation: (DBusConnection) -> any OrganisationProvider,
        sealer: RecordVault? = nil,
        keys: KeyTroubles = KeyTroubles(),
        log: Logger
    ) async throws {
        (self.options, self.provider, self.log) = (options, provider, log)
        // A second broker would change the state behind this one's back, and announce the change on another bus.
        lock = try ServiceLock(directory: options.stateDirectory)
        store = try DeviceStore(database: database, runtimeDirectory: options.runtimeDirectory, sealer: sealer)
        activity = ActivityFile(directory: options.stateDirectory)
        let now = Moment.now
        let content = try store.load(at: now)
        kept = content.configuration
        keptManifests = Locked(content.manifests)
        for problem in content.recordProblems {
            log.error("a record of the provider cannot be opened", metadata: ["reason": "\(problem)"])
        }
        let last = activity.date
        let state = BrokerState(content, lastActivity: last, requiresProof: options.hasManyUsers, at: now)
        let engine = BrokerEngine(state)
        self.engine = engine
        let connection = try DBusConnection.open(options.bus)
        self.connection = connection
        self.organisation = organisation(connection)
        center = DarwinNotifyCenter(connection: connection)
        let callers = Callers(
            connection: connection,
            arrived: { engine.submit(.arrived($0)) },
            left: { engine.submit(.left($0, mark: CleanupLedger.newMark())) },
            leaves: { log.error("the broker leaves the bus and comes back", metadata: ["reason": "\($0)"]) },
            hasRoom: { engine.hasRoom() }
        )
        engine.onRoom { [weak callers] in callers?.goOn() }
        self.callers = callers
        interface = BrokerInterface(engine: engine, callers: callers) { provider.signingKeys }
        let configuration = ManagedConfigurationFile(path: options.configurationFile)
        updates = try configuration.updates()
        manifests = try AppManifestDirectory(path: configuration.appManifestDirectory).updates(kept: content.manifests)
        engine.start { [weak self] in self?.perform($0) }
        keys.follow { engine.submit(.keys($0)) }
        engine.submit(.badges(provider.takesBadges))
        try await callers.start()
        // The first update is the current file. The broker answers calls only once it is in force.
        var manifests = manifests.makeAsyncIterator()
        if let first = await manifests.next() { use(first) }
        var updates = updates.makeAsyncIterator()
        if let first = await updates.next() { use(first) }
        let served = [
            try connection.export(
                [interface.interface],
                at: BrokerProtocol.path,
                limits: Callers.limits,
                admit: { callers.admit($0) }
            ),
            try connection.onEvent { [weak self] event in self?.heard(event) },
        ]
        observations.withLock { $0 = served }
        // A loss of the bus, which ends all connections, is noticed from here on.
        try await serve(content.ledger.connections)
        followCertificates()
    }

    deinit { login.withLock { $0 }?.stop() }

    /// Follows the managed configuration and the apps' manifests until the task is cancelled. Then waits until all
    /// changes are on the disk, for two seconds at most.
    package func run() async {
        async let followed: Void = { for await manifests in manifests { use(manifests) } }()
        for await update in updates { use(update) }
        await followed
        engine.submit(.ending)
        // In a task that is not cancelled, so that its sleep works.
        await Task { [self] in
            let deadline = ContinuousClock.now + .seconds(2)
            while !isOnDisk, ContinuousClock.now < deadline { try? await Task.sleep(for: .milliseconds(10)) }
        }.value
    }

    private var isOnDisk: Bool { engine.read { $0.isReadyToEnd } && unkept.withLock { $0 == KeptSettings() } }

    /// Whether the engine is making progress, for a watchdog. A stalled disk or bus does not count as a problem.
    package func hasGoneOn() -> Bool { engine.hasGoneOn() }

    private func use(_ manifests: AppManifests) {
        for problem in manifests.problems { log.error("app manifest", metadata: ["problem": "\(problem)"]) }
        // Limited, because they have to fit into a response and people have to read them.
        let problems = manifests.problems.prefix(20).map { String("\($0)".prefix(500)) }
        engine.submit(.manifests(manifests.manifests, problems: problems, unknown: manifests.unknown))
        for warning in engine.read({ $0.eligibility.warnings }) {
            log.warning("apps", metadata: ["warning": "\(warning)"])
        }
        let isNews = keptManifests.withLock { kept in
            defer { kept = manifests.contents }
            return kept != manifests.contents
        }
        if isNews { keep { $0.manifests = manifests.contents } }
    }

    // MARK: The configuration

    private func use(_ update: ManagedConfigurationUpdate) {
        if let problem = update.problem { log.error("managed configuration", metadata: ["problem": "\(problem)"]) }
        switch update.inForce {
        case .present(let configuration):
            for warning in configuration.warnings {
                log.warning("managed configuration", metadata: ["warning": "\(warning)"])
            }
            keep(configuration)
        case .missing:
            let file = "\(options.configurationFile)"
            log.warning("there is no managed configuration: the device is personal", metadata: ["file": "\(file)"])
            keep(ManagedConfiguration())
        case nil: break
        }
        var policy = DevicePolicy(
            inForce: update.inForce,
            kept: kept.flatMap { try? JSONDecoder().decode(ManagedConfiguration.self, from: $0) },
            hasManyUsers: options.hasManyUsers
        )
        if !policy.isConfigured {
            log.error("no configuration was ever valid: users cannot sign in")
        } else if update.inForce == nil {
            log.warning("the last valid configuration stays in force")
        }
        policy.problem = update.problem?.description
        engine.submit(.configured(policy))
        let trustAnchors = policy.organisation?.trustAnchors
        certificates.async { [weak self] in _ = self?.lookAtCertificates(trustAnchors) }
        followLogin(policy)
        log.info("configured", metadata: ["mode": "\(policy.mode.rawValue)"])
    }

    private static let certificateInterval = DispatchTimeInterval.seconds(60)

    /// Reads the certificates again from time to time, because they may be renewed. Logs a warning on each day near the
    /// end. Also looks for badges, which a command gives to users.
    private func followCertificates(warned: [String] = []) {
        certificates.asyncAfter(deadline: .now() + Self.certificateInterval) { [weak self] in
            guard let self else { return }
            engine.submit(.badges(provider.takesBadges))
            let warnings = lookAtCertificates(engine.read { $0.policy.organisation?.trustAnchors })
                .compactMap { $0.warning(now: Date().timeIntervalSince1970) }
            for warning in warnings where !warned.contains(warning) {
                log.warning("a certificate needs attention", metadata: ["problem": "\(warning)"])
            }
            followCertificates(warned: warnings)
        }
    }

    private func lookAtCertificates(_ trustAnchors: String?) -> [DeviceCertificate] {
        let directory = parentDirectory(of: options.configurationFile)
        let certificates = DeviceCertificate.all(trustAnchors: trustAnchors, directory: directory)
        engine.submit(.certificates(certificates))
        return certificates
    }

    private func keep(_ configuration: ManagedConfiguration) {
        do {
            let content = try JSONEncoder().encode(configuration)
            keep { $0.configuration = content }
        } catch {
            log.error("the configuration is not kept for the next start", metadata: ["reason": "\(error)"])
        }
    }

    private func keep(_ change: (inout KeptSettings) -> Void) {
        let isIdle = unkept.withLock { unkept in
            defer { change(&unkept) }
            return unkept == KeptSettings()
        }
        if isIdle { keepSettings() }
    }

    /// Retries each second until the settings are on the disk: a start with a broken file would apply older ones.
    private func keepSettings(isRetry: Bool = false) {
        let failed: @Sendable (String) -> Void = { [weak self, log] reason in
            if !isRetry {
                log.error("the configuration is not kept for the next start", metadata: ["reason": "\(reason)"])
            }
            DispatchQueue.global().asyncAfter(deadline: .now() + 1) { [weak self] in self?.keepSettings(isRetry: true) }
        }
        // The job holds the service, so that a queued job runs even after the service has ended.
        let isTaken = disk.submit { [self] in
            let settings = unkept.withLock { $0 }
            do {
                try store.keep(settings)
            } catch {
                return failed("\(error)")
            }
            if isRetry { log.notice("the configuration is kept for the next start") }
            let isLatest = unkept.withLock { unkept in
                guard unkept == settings else { return false }
                unkept = KeptSettings()
                return true
            }
            if !isLatest { keepSettings() }
        }
        if !isTaken { failed("the disk does not keep up") }
    }

    private func followLogin(_ policy: DevicePolicy) {
        let isWanted = policy.endsAtScreenLock || policy.endsAtLogout || policy.followsSeat
        // A broker for many users is the machine's, and follows the seat. Otherwise it follows its own user.
        let settings = LoginWatch.Settings(
            bus: options.loginBus,
            scope: options.hasManyUsers ? .seat("seat0") : .user(geteuid()),
            delaysShutdown: policy.identity == .loginSession
        )
        // Stopped outside the lock: a cancellation calls the handlers of the calls in flight.
        let ended = login.withLock { login -> LoginWatch? in
            guard login?.settings != (isWanted ? settings : nil) else { return nil }
            let ended = login
            login = isWanted ? LoginWatch(settings, log: log) { [weak self] event in self?.engine.submit(event) } : nil
            return ended
        }
        ended?.stop()
    }

    func endLogins(_ sessions: [String]) {
        let watch = login.withLock { $0 }
        Task { [engine] in
            let problem = if let watch { await watch.end(sessions) } else { "logind is not followed" as String? }
            engine.submit(.loginsEnded(sessions, problem))
        }
    }

    // MARK: The bus

    private func heard(_ event: ConnectionEvent) {
        switch event {
        case .lost:
            log.warning("the bus is lost")
            callers.forgetAll()
            engine.submit(.busLost(mark: CleanupLedger.newMark()))
        case .restored(let failures):
            log.notice("the bus is back", metadata: ["failures": "\(failures)"])
            Task { await serveAgain() }
        }
    }

    /// Takes the name, once it is known which of these connections have ended.
    private func serve(_ connections: Set<String>) async throws(DBusError) {
        for connection in try await callers.follow(connections) {
            engine.submit(.left(connection, mark: CleanupLedger.newMark()))
        }
        try await connection.requestName(BrokerProtocol.busName)
        engine.submit(.busRestored)
    }

    /// Takes the name again after an outage, even from another process, and tells all apps to ask.
    private func serveAgain() async {
        while true {
            do throws(DBusError) {
                return try await serve(engine.read { $0.ledger.connections })
            } catch {
                // The bus is lost again: the next restoration starts over.
                guard error.code != .disconnected, error.code != .closed else { return }
                log.critical("the broker has no name on the bus", metadata: ["reason": "\(error)"])
                try? await Task.sleep(for: .seconds(2))
            }
        }
    }
}

extension BrokerService {
    /// Carries out an effect. Only ``Effect/noteState(_:)`` blocks, and the engine runs it on its own queue.
    func perform(_ effect: Effect) {
        switch effect {
        case .reply(let number, let result): interface.reply(number, result)
        case .noteState(let state): note(state)
        case .announce(let modeChanged):
            interface.forgetAnswers()
            announce(modeChanged)
        case .commit(let batch):
            // The cached responses may contain data that the store erases.
            if batch.erases { interface.forgetAnswers() }
            commit(batch)
        case .authenticate(let number, let credentials):
            ask(Event.authenticated, number) { [provider] () throws(IdentityError) in
                try await provider.authenticate(credentials)
            }
        case .issueToken(let number, let account, let scopes):
            ask(Event.issued, number) { [provider] () throws(IdentityError) in
                try await provider.issueToken(for: account, scopes: scopes)
            }
        case .beginSignIn(let name, let start):
            ask(Event.signInBegan, name) { [organisation] () throws(IdentityError) in
                try await organisation.begin(start)
            }
        case .completeSignIn(let name, let handle, let query):
            ask(Event.signedIn, name) { [organisation] () throws(IdentityError) -> ProviderSignIn? in
                try await organisation.complete(handle, query: query)
            }
        case .pollSignIn(let name, let handle):
            ask(Event.signedIn, name) { [organisation] () throws(IdentityError) in
                try await organisation.poll(handle)
            }
        case .cancelSignIn(let handle): Task { [organisation] in await organisation.cancel(handle) }
        case .renew(let number, let record, let scopes, let mayBeUsed):
            Task { [engine, organisation] in
                let outcome = await organisation.renew(record, scopes: scopes, mayBeUsed: mayBeUsed)
                engine.submit(.renewed(number, outcome))
            }
        case .tellSessionEnd(let number, let record, let keepsSession):
            Task { [engine, organisation] in
                do throws(IdentityError) {
                    try await organisation.end(record, keepsSession: keepsSession)
                    engine.submit(.sessionEndTold(number, nil))
                } catch {
                    engine.submit(.sessionEndTold(number, error))
                }
            }
        case .startService(let app, let name): startService(app, name)
        case .endLogins(let sessions): endLogins(sessions)
        case .allowShutdown: login.withLock { $0 }?.allowShutdown()
        case .authorise(let number, let caller, let right, let isInteractive):
            // Only on the system bus is polkit's name protected.
            guard options.bus == .system else { return engine.submit(.authorised(number, false)) }
            Task { [engine, connection] in
                let isPermitted = await connection.polkitPermits(caller, right, isInteractive: isInteractive)
                engine.submit(.authorised(number, isPermitted))
            }
        case .findOperators(let names):
            Task { [engine] in
                let users = await onSystemThread { Operators(names).users }
                engine.submit(.operatorsFound(names: names, users: users))
            }
        case .readLog(let number, let filter): readLog(number, filter)
        case .keepActivity(let date):
            // If the queue is full, this date is lost; a later one follows.
            disk.submit { [activity, log] in
                if let problem = activity.write(date) {
                    log.warning("a restart will not know of the last activity", metadata: ["reason": "\(problem)"])
                }
            }
        case .journal(let entry): log.info("\(entry.event.rawValue)", metadata: entry.metadata)
        case .note(let level, let text, let details):
            log.log(level: level, "\(text)", metadata: details.mapValues { "\($0)" })
        }
    }

    /// Asks a provider and submits its response as an event with this key. Each request has its own task, so that a
    /// stalled provider holds up no other effect.
    private func ask<Key: Sendable, Value: Sendable>(
        _ event: @escaping @Sendable (Key, Result<Value, IdentityError>) -> Event,
        _ key: Key,
        _ question: @escaping @Sendable () async throws(IdentityError) -> Value
    ) {
        Task { [engine] in
            do throws(IdentityError) {
                engine.submit(event(key, .success(try await question())))
            } catch {
                engine.submit(event(key, .failure(error)))
            }
        }
    }

    /// How long a stalled disk may delay a broadcast.
    private static let notePatience = DispatchTimeInterval.milliseconds(50)

    /// Notes a sign-out, the only effect that may block: a restart must not restore a session that was announced as
    /// ended.
    private func note(_ state: DeviceState) {
        let isNoted = DispatchSemaphore(value: 0)
        // The note in memory has its own thread, too: memory that is rarely used may be swapped out to a stalled disk.
        let isRemembered = memoryNotes.submit { [store] in
            store.notes.noteInMemory(state, at: Date())
            isNoted.signal()
        }
        let isTaken = notes.submit { [store, log] in
            if let problem = store.notes.note(state, at: Date()) {
                log.error("a sign-out is not noted: \(store.notes.undoing)", metadata: ["reason": "\(problem)"])
            }
            isNoted.signal()
        }
        let patience = DispatchTime.now() + Self.notePatience
        for isAwaited in [isRemembered, isTaken] where !isAwaited || isNoted.wait(timeout: patience) != .success {
            let reason = "the disk does not keep up"
            return log.error("a sign-out is not noted yet: \(store.notes.undoing)", metadata: ["reason": "\(reason)"])
        }
    }

    private func announce(_ modeChanged: Bool) {
        do throws(DBusError) {
            try center.queue(.sharedModeCurrentAccountChanged)
            if modeChanged { try center.queue(NotificationName(BrokerProtocol.modeChangedNotification)) }
            callers.announced()
        } catch {
            // Once the bus is back, all apps are told to ask.
            log.warning("the apps are not told of a change yet", metadata: ["reason": "\(error)"])
        }
    }

    private func commit(_ batch: Batch) {
        let isTaken = disk.submit { [store, engine, disk, log] in
            do throws(StoreError) {
                try store.commit(batch)
                engine.submit(.committed(batch.number))
            } catch {
                engine.submit(.commitFailed(batch, "\(error)"))
            }
            guard batch.erases else { return }
            let erase: @Sendable () -> Void = {
                store.database.eraseRemnants()
                guard let remnants = store.database.remnants else { return }
                log.warning("removed data is still in the store's files", metadata: ["reason": "\(remnants)"])
            }
            // Queued behind other work, because no request waits for it.
            if !disk.submit(erase) { erase() }
        }
        if !isTaken { engine.submit(.commitFailed(batch, "the disk does not keep up")) }
    }

    private func readLog(_ number: UInt64, _ filter: AuditFilter) {
        let isTaken = reads.submit { [store, engine] in
            let lines = Result { () throws(StoreError) in try store.database.auditLog(filter) }
            engine.submit(.logRead(number, lines.mapError { .failed("\($0)") }))
        }
        guard !isTaken else { return }
        let problem = "too many requests for the log are pending; ask again"
        let error = StoreError(.busy, attempted: "read the audit log", message: problem)
        engine.submit(.logRead(number, .failure(.failed("\(error)"))))
    }

    private func startService(_ app: String, _ name: String) {
        Task { [engine, connection] in
            let outcome: ServiceStart
            do throws(DBusError) {
                // 1 means that the bus started the service, 2 that it was running.
                let answer = try await connection.callBus("StartServiceByName", [.string(name), .uint32(0)])
                outcome = answer.first?.unsignedValue == 1 ? .started : .running
            } catch {
                outcome = error.code == .disconnected || error.code == .closed ? .noBus : .failed(error.message)
            }
            engine.submit(.serviceStarted(app: app, outcome))
        }
    }
}

extension DBusConnection {
    /// Asks polkit, on the system bus, whether the caller has a right. Without a response, the caller does not have it.
    ///
    /// - Parameters:
    ///   - caller: The connection's name with the bus's identifier in front.
    ///   - isInteractive: Whether polkit may ask a person for a password.
    fileprivate func polkitPermits(
        _ caller: String,
        _ right: Administration.Right,
        isInteractive: Bool
    ) async -> Bool {
        let name = String(caller.drop { $0 != ":" })
        do throws(DBusError) {
            let question = try DBusMessage.methodCall(
                destination: "org.freedesktop.PolicyKit1",
                path: "/org/freedesktop/PolicyKit1/Authority",
                interface: "org.freedesktop.PolicyKit1.Authority",
                member: "CheckAuthorization",
                arguments: [
                    .structure([.string("system-bus-name"), .fields(["name": .string(name)])]),
                    .string("org.notifycenter.shared-device.\(right.rawValue)"), .dictionary([], key: "s", value: "s"),
                    .uint32(isInteractive ? 1 : 0), .string(""),
                ]
            )
            let answer = try await call(question, timeout: isInteractive ? .seconds(60) : .seconds(5))
            guard case .structure(let verdict)? = answer.first else { return false }
            return verdict.first?.booleanValue == true
        } catch {
            return false
        }
    }
}
