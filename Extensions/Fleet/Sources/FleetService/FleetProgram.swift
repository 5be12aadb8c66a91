package import ArgumentParser
import Basics
package import DBus
package import Fleet
package import Glibc
import Logging
package import MQTTClient
package import ServiceSupport

/// The agent or the controller of a fleet. Each runs in a separate process.
package protocol FleetService: Sendable {
    /// - Parameters:
    ///   - configuration: the content of the file, or the reason why it is unusable.
    ///   - checksKey: whether to check the permissions of the key.
    ///   - log: takes a line for the administrator.
    /// - Throws: ``FleetRefusal`` for an error that an administrator must fix first; other errors if there is no such
    ///   bus.
    init(
        _ configuration: Result<FleetConfiguration, FleetRefusal>,
        stateDirectory: String,
        bus: Bus,
        checksKey: Bool,
        log: @escaping @Sendable (String) -> Void
    ) throws

    /// Starts serving. Returns when the service is ready.
    func start() async throws
    /// Whether the configuration was unusable at the start, and the service runs without it until it can be used.
    var needsConfiguration: Bool { get }
    /// Whether it is working; does not return if it hangs. Called on a thread that may block.
    var isAlive: Bool { get }
    /// Stops serving. Returns when the MQTT server has been notified.
    func stop() async
}

/// The command-line options of agent and controller, and their start and end.
package struct FleetProgram: ParsableArguments {
    @Option(help: ArgumentHelp("The bus: session, system, or an address.", valueName: "bus"))
    package var bus: String = "system"

    @Option(
        help: ArgumentHelp(
            "The configuration.",
            discussion: "By default /etc/shared-device/fleet-agent.json or fleet-controller.json.",
            valueName: "file"
        )
    )
    package var configuration: String?

    @Option(
        name: .customLong("state"),
        help: ArgumentHelp(
            "The directory in which it stores its state.",
            discussion: "By default a directory in /var/lib with the program's name.",
            valueName: "dir"
        )
    )
    package var directory: String?

    @Option(help: ArgumentHelp("The least level to log.", valueName: "level"))
    package var logLevel: LogLevel = .info

    package init() {}

    /// The interval of rereading an unusable configuration.
    private static let look = Duration.seconds(5)

    /// Serves until SIGTERM or SIGINT. Also ends when a configuration that was unusable at the start becomes usable;
    /// the supervisor, such as systemd, must then start the program again. Prints “ready” once it serves.
    ///
    /// - Parameter role: `agent` or `controller`, as in file names.
    /// - Throws: `ExitCode` after a line in the log: 78 for an error that an administrator must fix first, 69 for a
    ///   missing resource.
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
                bus: Bus(name: bus),
                checksKey: true
            ) { log.notice("\($0)") }
            try await service.start()
        } catch {
            log.error("\(error)")
            throw ExitCode(error is FleetRefusal ? EX_CONFIG : EX_UNAVAILABLE)
        }
        // The time limit without contact is enforced only while the agent works, so the watchdog asks for that.
        process.isReady { service.isAlive }
        let looking = Task {
            while service.needsConfiguration {
                try await Task.sleep(for: Self.look)
                guard (try? FleetFiles.configuration(file)) != nil else { continue }
                log.notice("\(file) can be used now: the program ends, to be started again with it")
                // Ends by the same path as an external SIGTERM.
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

/// The time of a clock, in seconds.
package func seconds(of clock: clockid_t) -> Double {
    var time = timespec()
    clock_gettime(clock, &time)
    return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
}

extension MQTTOptions {
    /// The server of a fleet's configuration. Checks the key's permissions before each connection.
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
