import ArgumentParser
import FleetLoad
import Glibc

/// The program behind `make test-fleet`.
@main
struct LoadCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "fleet-load",
        abstract: "Simulates a fleet with a real MQTT server and the built controller, and prints the costs.",
        discussion: """
            Exit status: 0 the guarantees held; 1 they did not. If the time limit is exceeded because other programs \
            have used the processors, the program reports that, and it is no failure.
            """
    )

    @Option(help: "The number of simulated devices, which share few connections.")
    var devices = 100_000

    @Option(help: "The number of connections that the simulated devices share.")
    var connections = 100

    @Option(help: "The seed, which decides which devices are offline or flap, and how long apps take.")
    var seed: UInt64 = 1

    @Option(help: "The time limit for all simulated devices in seconds, on two idle processors.")
    var within = 60.0

    @Option(help: "Instead: the number of devices that each have a connection and a certificate.")
    var certified: Int?

    @Option(help: "The number of processes for these devices. One process has room for 5000, with 20,000 open files.")
    var processes = 4

    @Option(help: .hidden)
    var clients: String?

    @Option(help: .hidden)
    var port: UInt16 = 0

    @Option(help: .hidden)
    var from = 0

    @Option(help: .hidden)
    var to = 0

    func validate() throws {
        guard connections > 0, devices % connections == 0, processes > 0, (certified ?? 0) % processes == 0 else {
            throw ValidationError("the devices have to be a multiple of the connections, or of the processes")
        }
        guard within > 0 else { throw ValidationError("the time has to be more than 0 s") }
    }

    func run() async throws {
        if let clients { return try LoadClients(from..<to, folder: clients, port: port).serve() }
        if let certified {
            try await ConnectionLoad(devices: certified, processes: processes).run(Self.say)
        } else {
            let limit = TimeLimit(seconds: within)
            try await StateLoad(devices: devices, connections: connections, seed: seed, limit: limit).run(Self.say)
        }
    }

    /// Prints a line and flushes it, even without a terminal.
    private static func say(_ line: String) {
        print(line)
        fflush(nil)
    }
}
