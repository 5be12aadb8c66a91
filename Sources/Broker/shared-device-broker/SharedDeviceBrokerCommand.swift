import ArgumentParser
import CLinux
import DBusTransport
import DeviceConfiguration
import DeviceStorage
import EmbeddedIdentity
import FoundationEssentials
import Glibc
import Logging
import NotifyCenter
import ProjectVersion
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

    @Option(help: ArgumentHelp("The bus: session, system, or an address.", valueName: "bus"))
    var bus: String?

    @Option(
        name: .customLong("state"),
        help: ArgumentHelp("The state directory, as “shared-device --state” takes it.", valueName: "dir")
    )
    var stateDirectory: String?

    @Option(
        name: .customLong("configuration"),
        help: ArgumentHelp(
            "The managed configuration, a JSON file; read again when it changes.",
            valueName: "file"
        )
    )
    var configurationFile: String = ManagedConfigurationFile.defaultPath

    @Option(
        help: ArgumentHelp(
            "Where logind is: system, session, or an address. For sign-out with screen lock and logout.",
            valueName: "bus"
        )
    )
    var loginBus: String = "system"

    @Flag(
        help: """
            More than one user reaches the bus, as is always so on the system bus: only apps take part whose manifests name what \
            another user cannot forge.
            """
    )
    var manyUsers = false

    @Option(
        help: ArgumentHelp("The least level to log.", valueName: "level")
    )
    var logLevel: LogLevel = .info

    func run() async throws {
        // Secrets of people who sign in are in memory for a while.
        CLinux_keepMemoryPrivate()
        var noCore = rlimit()
        setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &noCore)
        let environment = ProcessInfo.processInfo.environment
        let output = LogOutput(environment: environment)
        defer { output.finish() }
        let log = output.logger("shared-device-broker", level: Logger.Level(rawValue: logLevel.rawValue) ?? .info)
        let options = BrokerService.Options(
            bus: bus.map(Bus.init(name:)) ?? .fromEnvironment,
            stateDirectory: stateDirectory
                ?? StateDirectory.path(
                    environment: environment,
                    effectiveUser: geteuid(),
                    home: FileManager.default.homeDirectoryForCurrentUser.path
                ),
            configurationFile: configurationFile,
            loginBus: Bus(name: loginBus),
            hasManyUsers: manyUsers ? true : nil
        )
        // A journal that goes away ends nothing.
        signal(SIGPIPE, SIG_IGN)
        let end = EndSignals()
        let service: BrokerService
        do {
            let database = try DeviceDatabase(directory: options.stateDirectory)
            let provider = try EmbeddedIdentityProvider(directory: UserDirectory(database: database))
            service = try await BrokerService(options, database: database, provider: provider, log: log)
        } catch {
            log.critical("\(error)")
            throw ExitCode(error is DBusError ? EX_UNAVAILABLE : EX_CONFIG)
        }
        // Whoever started it may have closed the other end.
        _ = Array("ready\n".utf8).withUnsafeBytes { write(STDOUT_FILENO, $0.baseAddress, $0.count) }
        let manager = ServiceManager(environment: environment)
        manager?.follow {
            service.hasGoneOn()
        } failed: { problem in
            log.warning(
                "the service manager is told again that the broker is ready",
                metadata: ["reason": "\(problem)"]
            )
        }
        let following = Task { await service.run() }
        await end.first()
        if let problem = manager?.tell("STOPPING=1") {
            log.warning("the service manager does not hear that the broker ends", metadata: ["reason": "\(problem)"])
        }
        following.cancel()
        await following.value
    }
}

/// The levels of swift-log, as a command line takes them.
enum LogLevel: String, ExpressibleByArgument, CaseIterable {
    case trace
    case debug
    case info
    case notice
    case warning
    case error
}
