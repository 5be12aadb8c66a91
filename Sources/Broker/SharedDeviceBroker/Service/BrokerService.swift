import DBusTransport
package import Logging
package import NotifyCenter
import SharedDevice
import Synchronization

/// The broker as a service on a bus: store, identity provider, configuration and D-Bus interface, put together.
package final class BrokerService: Sendable {
    /// What an administrator sets.
    package struct Options: Sendable {
        package var bus: Bus
        package var stateDirectory: String
        package var configurationFile: String
        /// Where logind is.
        package var loginBus: Bus

        package init(bus: Bus, stateDirectory: String, configurationFile: String, loginBus: Bus = .system) {
            self.bus = bus
            self.loginBus = loginBus
            self.stateDirectory = stateDirectory
            self.configurationFile = configurationFile
        }
    }

    private let broker: DeviceBroker
    private let connection: DBusConnection
    private let callers: Callers
    private let waker: Waker
    private let enrolment: Enrolment
    private let life: SessionLife
    private let lock: ServiceLock
    private let configurationFile: String
    private let status = ConfigurationStatus()
    private let updates: AsyncStream<ManagedConfigurationUpdate>
    private let manifests: AsyncStream<AppManifests>
    private let tokens: [Observation]
    private let log: Logger

    /// Starts the service: on return it owns its name and answers, under the configuration as it is.
    ///
    /// - Throws: ``StoreError``, ``IdentityError``, ``ManagedConfigurationError`` or ``DBusError``; among them `nameTaken` where
    ///   another broker serves this bus.
    package init(_ options: Options, log: Logger) async throws {
        self.log = log
        let database = try DeviceDatabase(directory: options.stateDirectory)
        // A second broker would change the state unseen by this one, and announce the change on another bus.
        lock = try ServiceLock(directory: options.stateDirectory)
        let provider = try EmbeddedIdentityProvider(directory: UserDirectory(database: database))
        let connection = try DBusConnection.open(options.bus)
        let center = DarwinNotifyCenter(connection: connection)
        let waking = Locked<Waker?>(nil)
        let enrolment = Enrolment(log: log)
        let living = Locked<SessionLife?>(nil)
        let announcedMode = Locked<ManagedMode?>(nil)
        let surroundings = DeviceBroker.Surroundings(
            announce: { state in
                let modeBefore = announcedMode.withLock { mode in
                    defer { mode = state.mode }
                    return mode
                }
                do throws(DBusError) {
                    try center.post(.sharedModeCurrentAccountChanged)
                    if modeBefore != state.mode {
                        try center.post(NotificationName(BrokerProtocol.modeChangedNotification))
                    }
                } catch {
                    // When the bus is back, all are told to ask.
                    log.warning("not announced", metadata: ["epoch": "\(state.epoch)", "reason": "\(error)"])
                }
                living.withLock { $0 }?.sessionChanged()
                if let remnants = database.remnants {
                    log.warning("left in the store's file", metadata: ["reason": "\(remnants)"])
                }
            },
            wake: { app in waking.withLock { $0 }?.wake(app) },
            report: { problem in log.error("the ledger is not on the disk yet", metadata: ["reason": "\(problem)"]) }
        )
        let broker = try DeviceBroker(database: database, provider: provider, surroundings: surroundings)
        let callers = Callers(
            connection: connection,
            identify: { claimed, credentials throws(DeviceRefusal) in try enrolment.identify(claimed, credentials) },
            identifyRefused: { claimed, credentials in enrolment.identifyRefused(claimed, credentials) },
            appStarted: { app, credentials in
                for key in enrolment.formerKeys(app, credentials) {
                    do {
                        try await broker.adopt(key, as: app.identifier)
                    } catch {
                        log.error("the ledger is not on the disk yet", metadata: ["reason": "\(error)"])
                    }
                }
                await broker.appStarted(app.identifier)
            },
            appEnded: { app in await broker.appEnded(app) }
        )
        let waker = Waker(
            connection: connection,
            busName: { app in enrolment.busName(of: app) },
            isOwing: { app in await broker.isOwing(app) },
            woken: { app, detail in await broker.wasWoken(app, detail: detail) }
        )
        waking.withLock { $0 = waker }
        let life = SessionLife(
            broker: broker,
            directory: options.stateDirectory,
            bus: options.bus,
            loginBus: options.loginBus,
            log: log
        )
        living.withLock { $0 = life }
        self.life = life
        self.broker = broker
        self.connection = connection
        self.callers = callers
        self.waker = waker
        self.enrolment = enrolment
        let configuration = ManagedConfigurationFile(path: options.configurationFile)
        configurationFile = options.configurationFile
        updates = try configuration.updates()
        manifests = try AppManifestDirectory(path: configuration.appManifestDirectory).updates()
        let interface = BrokerInterface(broker: broker, callers: callers, life: life, status: status, log: log)
        tokens = [
            try connection.export([interface.interface], at: BrokerProtocol.path),
            try connection.onEvent { event in
                switch event {
                case .lost:
                    log.warning("the bus is lost")
                    callers.forgetAll()
                case .restored(let failures):
                    log.notice("the bus is back", metadata: ["failures": "\(failures)"])
                    Task { await Self.serveAgain(broker, connection, log) }
                }
            },
        ]
        var manifests = manifests.makeAsyncIterator()
        if let first = await manifests.next() { enrolment.use(first) }
        // The first update is the present file. The broker answers no call before it is in force.
        var iterator = updates.makeAsyncIterator()
        if let update = await iterator.next() {
            // The device has never been configured, so there is no earlier valid configuration to keep.
            if update.inForce == nil, let problem = update.problem, try AccountStore(database: database).isUntouched() {
                throw problem
            }
            try await take(update)
        }
        try await connection.requestName(BrokerProtocol.busName)
        await broker.announceAgain()
    }

    /// Follows the managed configuration and the apps' manifests until the task is cancelled. When it returns, the whole log is on the disk.
    package func run() async {
        async let manifests: Void = followManifests()
        await followConfiguration()
        await manifests
        // Some entries are written with a delay: they have to be on the disk before the process ends.
        do {
            try await broker.written()
        } catch {
            log.error("the ledger is not on the disk", metadata: ["reason": "\(error)"])
        }
    }

    private func followManifests() async {
        for await manifests in manifests {
            enrolment.use(manifests)
            callers.identifyAnew()
            await broker.wakeDebtors()
        }
    }

    private func followConfiguration() async {
        var latest: Task<Void, Never>?
        for await update in updates {
            // A newer configuration replaces the older one, so the attempts to put that in force end.
            let earlier = latest
            earlier?.cancel()
            latest = Task {
                // An attempt that is under way has to end first: it would overwrite the newer one.
                await earlier?.value
                await insist(on: update)
            }
        }
        latest?.cancel()
    }

    /// Puts a configuration in force, again and again until it is: the store may be busy for a while.
    private func insist(on update: ManagedConfigurationUpdate) async {
        while !Task.isCancelled {
            do {
                return try await take(update)
            } catch {
                log.error("the configuration is not in force yet", metadata: ["reason": "\(error)"])
                try? await Task.sleep(for: .seconds(2))
            }
        }
    }

    /// After an outage: takes the name again, even if another process has taken it meanwhile, and tells all apps to ask.
    private static func serveAgain(_ broker: DeviceBroker, _ connection: DBusConnection, _ log: Logger) async {
        while true {
            do throws(DBusError) {
                try await connection.requestName(BrokerProtocol.busName)
                return await broker.announceAgain()
            } catch {
                // The bus is lost again: the next restoration starts over.
                guard error.code != .disconnected, error.code != .closed else { return }
                log.critical("the broker has no name on the bus", metadata: ["reason": "\(error)"])
                try? await Task.sleep(for: .seconds(2))
            }
        }
    }

    private func take(_ update: ManagedConfigurationUpdate) async throws {
        status.update(update)
        if let problem = update.problem { log.error("managed configuration", metadata: ["problem": "\(problem)"]) }
        switch update.inForce {
        case .missing:
            log.warning(
                "there is no managed configuration: the device is personal",
                metadata: ["file": "\(configurationFile)"]
            )
        case .present(let configuration):
            for key in configuration.unknownKeys {
                let suggestion = ManagedConfiguration.suggestion(forUnknownKey: key).map { "; is “\($0)” meant?" } ?? ""
                log.warning("unknown key in the configuration", metadata: ["key": "\(key)\(suggestion)"])
            }
        case nil: break
        }
        let configuration = update.inForce.map { content in
            if case .present(let configuration) = content {
                configuration
            } else {
                ManagedConfiguration(sharedDeviceMode: false)
            }
        }
        enrolment.use(configuration)
        callers.identifyAnew()
        // Without a valid configuration the strict policy applies: the next sign-in waits.
        await broker.use(configuration?.cleanup ?? CleanupPolicy(isStrict: true))
        guard let configuration else { return }
        // The rules of who may sign in come first, then the mode.
        try await life.use(SessionPolicy(configuration))
        let state = try await broker.apply(.modeChanged(configuration.mode), cause: "the managed configuration")
        log.info("configured", metadata: ["mode": "\(configuration.mode.rawValue)", "epoch": "\(state.epoch)"])
    }
}

/// What the managed configuration says beyond the mode, for whoever asks.
final class ConfigurationStatus: Sendable {
    struct Content: Sendable {
        var organization: String?
        /// Why the present file is not in force; `nil` if it is.
        var problem: String?
    }

    private let content = Locked(Content())

    var current: Content { content.withLock { $0 } }

    func update(_ update: ManagedConfigurationUpdate) {
        content.withLock { content in
            content.problem = update.problem?.description
            guard let inForce = update.inForce else { return }
            content.organization =
                if case .present(let configuration) = inForce { configuration.organization } else { nil }
        }
    }
}
