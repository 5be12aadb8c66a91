import ArgumentParser
import Basics
import DBus
import DeviceConfiguration
import DeviceStorage
import EmbeddedIdentity
import FoundationEssentials
import Glibc
import Identity
import Logging
import NotifyCenter
import ServiceSupport
import SharedDeviceBroker

@main
struct SharedDeviceBrokerCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "shared-device-broker",
        abstract: "Holds the one signed-in account of a shared device, and tells all apps when it changes.",
        discussion: """
            Serves org.notifycenter.SharedDevice1. Prints “ready” when it owns that name; logs to standard error. Ends \
            with SIGTERM or SIGINT.
            Exit status: 0 ended as asked; 64 wrong usage; 69 no bus, or another broker serves it; 78 state directory or \
            configuration cannot be used.
            """,
        version: ProjectVersion.line(of: "shared-device-broker")
    )

    @OptionGroup var common: ServiceOptions

    @Option(
        name: .customLong("state"),
        help: ArgumentHelp("The state directory, as “shared-device --state” takes it.", valueName: "dir")
    )
    var stateDirectory: String?

    @Option(
        help: ArgumentHelp(
            "Where logind is: system, session, or an address. For sign-out with screen lock and logout.",
            valueName: "bus"
        )
    )
    var loginBus: String = "system"

    @Option(
        help: ArgumentHelp(
            "The file in which services of this device find the keys that tokens are checked with.",
            discussion:
                "By default keys.json in $RUNTIME_DIRECTORY. Without that directory the keys are only on the bus.",
            valueName: "file"
        )
    )
    var keys: String?

    @Flag(
        help: """
            More than one user reaches the bus, as is always so on the system bus: only apps take part whose manifests name what \
            another user cannot forge.
            """
    )
    var manyUsers = false

    func run() async throws {
        let process = ServiceProcess("shared-device-broker", level: common.logLevel)
        defer { process.finish() }
        let (environment, log) = (ProcessInfo.processInfo.environment, process.log)
        let options = BrokerService.Options(
            bus: common.bus,
            stateDirectory: stateDirectory
                ?? StateDirectory.path(
                    environment: environment,
                    effectiveUser: geteuid(),
                    home: FileManager.default.homeDirectoryForCurrentUser.path
                ),
            configurationFile: common.configurationFile,
            loginBus: Bus(name: loginBus),
            hasManyUsers: manyUsers ? true : nil,
            runtimeDirectory: KeyFile.runtimeDirectory(environment: environment)
        )
        let end = try EndSignals()
        let keyTroubles = KeyTroubles()
        let service: BrokerService
        do {
            let database = try DeviceDatabase(directory: options.stateDirectory)
            let keyFile = (keys ?? KeyFile.path(environment: environment)).map(KeyFile.init)
            let provider = try EmbeddedIdentityProvider(
                directory: UserDirectory(database: database),
                publish: { text throws(StoreError) in try keyFile?.write(text) },
                report: { problem in
                    keyTroubles.set(problem, for: .tokens)
                    if let problem {
                        log.warning("the keys of tokens are in trouble", metadata: ["reason": "\(problem)"])
                    } else {
                        log.notice("the keys of tokens are in order again")
                    }
                }
            )
            service = try await BrokerService(
                options,
                database: database,
                provider: provider,
                // Used only if the configuration names a provider.
                organisation: { RemoteProvider(connection: $0) },
                sealer: vault(environment, keyTroubles, log),
                keys: keyTroubles,
                log: log
            )
        } catch {
            log.critical("\(error)")
            throw ExitCode(error is DBusError ? EX_UNAVAILABLE : EX_CONFIG)
        }
        process.isReady { service.hasGoneOn() }
        let following = Task { await service.run() }
        await end.first()
        process.isStopping()
        following.cancel()
        await following.value
    }

    /// Seals records of the organisation's provider. An invalid key counts as a missing one: records are then kept in
    /// memory only.
    private func vault(_ environment: [String: String], _ troubles: KeyTroubles, _ log: Logger) -> RecordVault? {
        do throws(Problem) {
            return try RecordVault.ofService(environment: environment)
        } catch {
            troubles.set("\(error); until then a restart of the broker has people sign in again", for: .records)
            log.error("the provider's records are kept in memory only", metadata: ["reason": "\(error)"])
            return nil
        }
    }
}
