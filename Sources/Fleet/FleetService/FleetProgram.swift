package import ArgumentParser
package import DBusTransport
package import Fleet
import Glibc
import Logging
package import MQTTClient
package import ServiceSupport

/// What a fleet's agent and controller are, each in a process of its own.
package protocol FleetService: Sendable {
    /// - Parameters:
    ///   - configuration: what the file says; or why it cannot be used.
    ///   - stateDirectory: what it remembers is there.
    ///   - log: takes a line for the administrator.
    /// - Throws: ``FleetRefusal`` for what an administrator has to mend first; other errors where there is no such bus.
    init(
        _ configuration: Result<FleetConfiguration, FleetRefusal>,
        stateDirectory: String,
        bus: Bus,
        log: @escaping @Sendable (String) -> Void
    ) throws

    /// Begins to serve, and returns when it does.
    func start() async throws
    /// Whether it serves without its configuration, which cannot be used, and would do more with it.
    var needsConfiguration: Bool { get }
    /// Whether it does its work; does not return where it hangs. Called on a thread that may wait.
    var isAlive: Bool { get }
    /// Ends what ``start()`` began, and returns when the MQTT server has been told.
    func stop() async
}

extension FleetService {
    package var needsConfiguration: Bool { false }
}

/// What the programs of agent and controller take on their command lines, and how they begin and end.
package struct FleetProgram: ParsableArguments {
    @Option(help: ArgumentHelp("The bus: session, system, or an address.", valueName: "bus"))
    package var bus: String = "system"

    @Option(
        help: ArgumentHelp(
            "The configuration.",
            discussion: "Otherwise /etc/shared-device/fleet-agent.json or fleet-controller.json.",
            valueName: "file"
        )
    )
    package var configuration: String?

    @Option(
        name: .customLong("state"),
        help: ArgumentHelp(
            "The directory of what it remembers.",
            discussion: "Otherwise in /var/lib, called as the program.",
            valueName: "dir"
        )
    )
    package var directory: String?

    @Option(help: ArgumentHelp("The least level to log.", valueName: "level"))
    package var logLevel: LogLevel = .info

    package init() {}

    /// How often a configuration that cannot be used is looked at again.
    private static let look = Duration.seconds(5)

    /// Serves until SIGTERM or SIGINT, or until a configuration that could not be used at the start can be: then whoever runs the program, such as systemd,
    /// has to start it again. Prints “ready” when it serves.
    ///
    /// - Parameter role: `agent` or `controller`, as the names of files have it.
    /// - Throws: `ExitCode`, after a line in the log: 78 for what an administrator has to mend first, 69 for what is not there.
    package func serve<Service: FleetService>(_ type: Service.Type, role: String) async throws {
        let process = ServiceProcess("shared-device-\(role)", level: logLevel)
        defer { process.finish() }
        let end = try EndSignals()
        let log = process.log
        let service: Service
        let file = configuration ?? "/etc/shared-device/fleet-\(role).json"
        do {
            service = try Service(
                Result { () throws(FleetRefusal) in try FleetFiles.configuration(file) },
                stateDirectory: directory ?? "/var/lib/shared-device-\(role)",
                bus: Bus(name: bus)
            ) { log.notice("\($0)") }
            try await service.start()
        } catch {
            log.error("\(error)")
            throw ExitCode(error is FleetRefusal ? EX_CONFIG : EX_UNAVAILABLE)
        }
        // A limit of time without contact is kept only while the agent works.
        process.isReady { service.isAlive }
        let looking = Task {
            while service.needsConfiguration {
                try await Task.sleep(for: Self.look)
                guard (try? FleetFiles.configuration(file)) != nil else { continue }
                log.notice("\(file) can be used now: the program ends, to be started again with it")
                // The end that everybody else asks for, too.
                return kill(getpid(), SIGTERM)
            }
            return 0
        }
        await end.first()
        looking.cancel()
        process.isStopping()
        await service.stop()
    }
}

extension MQTTOptions {
    /// The server that a fleet's configuration names. Before each connection the key's rights are looked at again.
    package init(_ configuration: FleetConfiguration) {
        self.init(
            host: configuration.host,
            port: configuration.port,
            clientIdentifier: configuration.name,
            certificates: Certificates(
                authority: configuration.authority,
                certificate: configuration.certificate,
                key: configuration.key
            )
        )
        objection = { FleetFiles.objection(toKey: configuration.key) }
    }
}
