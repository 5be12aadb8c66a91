import DBusTransport
package import Logging
package import NotifyCenter
import SharedDevice

/// The broker as a service on a bus: store, identity provider, configuration and D-Bus interface, put together.
package final class BrokerService: Sendable {
    /// What an administrator sets.
    package struct Options: Sendable {
        package var bus: Bus
        package var stateDirectory: String
        package var configurationFile: String

        package init(bus: Bus, stateDirectory: String, configurationFile: String) {
            self.bus = bus
            self.stateDirectory = stateDirectory
            self.configurationFile = configurationFile
        }
    }

    private let broker: DeviceBroker
    private let connection: DBusConnection
    private let status = ConfigurationStatus()
    private let updates: AsyncStream<ManagedConfigurationUpdate>
    private let tokens: [HandlerToken]
    private let log: Logger

    /// Starts the service: on return it owns its name and answers, under the configuration as it is.
    ///
    /// - Throws: ``StoreError``, ``IdentityError``, ``ManagedConfigurationError`` or ``DBusError``; among them `nameTaken` where
    ///   another broker serves this bus.
    package init(_ options: Options, log: Logger) async throws {
        self.log = log
        let database = try DeviceDatabase(directory: options.stateDirectory)
        let provider = try EmbeddedIdentityProvider(directory: UserDirectory(database: database))
        let connection = try DBusConnection.open(options.bus)
        let center = DarwinNotifyCenter(connection: connection)
        let broker = try DeviceBroker(store: AccountStore(database: database), provider: provider) { state in
            do throws(DBusError) {
                try center.post(.sharedModeCurrentAccountChanged)
            } catch {
                // When the bus is back, all are told to ask.
                log.warning("not announced", metadata: ["epoch": "\(state.epoch)", "reason": "\(error)"])
            }
            if let remnants = database.remnants {
                log.warning("left in the store's file", metadata: ["reason": "\(remnants)"])
            }
        }
        self.broker = broker
        self.connection = connection
        updates = try ManagedConfigurationFile(path: options.configurationFile).updates()
        let interface = BrokerInterface(broker: broker, connection: connection, status: status, log: log)
        tokens = [
            try connection.export([interface.interface], at: BrokerProtocol.path),
            try connection.onEvent { event in
                switch event {
                case .lost: log.warning("the bus is lost")
                case .restored(let failures):
                    log.notice("the bus is back", metadata: ["failures": "\(failures)"])
                    Task { await broker.announceAgain() }
                }
            },
        ]
        // The first update is the file as it is: nobody is to be answered under an older mode.
        var iterator = updates.makeAsyncIterator()
        if let update = await iterator.next() { try await take(update) }
        try await connection.requestName(BrokerProtocol.busName)
        await broker.announceAgain()
    }

    /// Follows the managed configuration until the task is cancelled.
    package func run() async {
        for await update in updates {
            do {
                try await take(update)
            } catch {
                log.error("the configuration could not be put in force", metadata: ["reason": "\(error)"])
            }
        }
    }

    private func take(_ update: ManagedConfigurationUpdate) async throws {
        status.update(update)
        if let problem = update.problem { log.error("managed configuration", metadata: ["problem": "\(problem)"]) }
        switch update.inForce {
        case .missing: log.notice("no managed configuration: the device is personal")
        case .present(let configuration) where !configuration.unknownKeys.isEmpty:
            log.warning("unknown keys in the configuration", metadata: ["keys": "\(configuration.unknownKeys)"])
        default: break
        }
        guard let mode = update.inForce?.mode else { return }
        let state = try await broker.apply(.modeChanged(mode))
        log.info("configured", metadata: ["mode": "\(mode.rawValue)", "epoch": "\(state.epoch)"])
    }
}
