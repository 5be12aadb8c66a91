import ArgumentParser
import DBusTransport
import Fleet
import FleetAgent
import Glibc
import ProjectVersion

@main
struct SharedDeviceAgentCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "shared-device-agent",
        abstract: "Carries out what the fleet's controller orders, and reports how this device stands.",
        discussion: """
            Talks to the broker on the bus and to the fleet's MQTT server. It can sign out and read, and nothing else. Prints “ready” at its \
            start; ends with SIGTERM or SIGINT.
            Exit status: 0 ended as asked; 64 wrong usage; 69 no bus; 78 configuration or state directory cannot be used.
            """,
        version: ProjectVersion.line(of: "shared-device-agent")
    )

    @Option(help: ArgumentHelp("The bus that the broker serves: session, system, or an address.", valueName: "bus"))
    var bus: String = "system"

    @Option(name: .customLong("configuration"), help: ArgumentHelp("The configuration.", valueName: "file"))
    var file: String = "/etc/shared-device/fleet-agent.json"

    @Option(name: .customLong("state"), help: ArgumentHelp("The directory of what it remembers.", valueName: "dir"))
    var directory: String = "/var/lib/shared-device-agent"

    func run() async throws {
        signal(SIGPIPE, SIG_IGN)
        let end = try EndSignals()
        let service: AgentService
        do {
            let configuration = try FleetFiles.configuration(file)
            service = try AgentService(configuration, stateDirectory: directory, bus: Bus(name: bus)) { log($0) }
        } catch {
            log("\(error)")
            throw ExitCode(error is FleetRefusal ? EX_CONFIG : EX_UNAVAILABLE)
        }
        let serving = Task { try await service.run() }
        // Whoever started it may have closed the other end.
        _ = Array("ready\n".utf8).withUnsafeBytes { write(STDOUT_FILENO, $0.baseAddress, $0.count) }
        await end.first()
        serving.cancel()
        try await serving.value
    }
}

/// Writes a line for the administrator.
private func log(_ line: String) {
    let line = Array("shared-device-agent: \(line)\n".utf8)
    // If standard error is closed, the line is lost.
    _ = write(STDERR_FILENO, line, line.count)
}
