import ArgumentParser
import FleetLoad
import Glibc

/// The program behind `make test-fleet`.
@main
struct LoadCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "fleet-load",
        abstract:
            "Simulates a fleet with a real MQTT server and the built controller, and prints the costs.",
        discussion: """
            Exit status: 0 what is promised held; 1 it did not. A time that is too long because other programs have used the processors is no failure; it \
            is said.
            """
    )

    @Option(help: "How many devices; they are states behind few connections.")
    var devices = 100_000

    @Option(help: "Behind how many connections they are.")
    var connections = 100

    @Option(help: "Decides who is away, who comes and goes, and how long apps take.")
    var seed: UInt64 = 1

    @Option(help: "In how many seconds all devices that are states have to be done, on two processors.")
    var within = 60.0

    @Option(help: "Instead: so many devices with a connection and a certificate each.")
    var certified: Int?

    @Option(help: "In how many processes these are: one may have 5000, at four of 20,000 open files each.")
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
