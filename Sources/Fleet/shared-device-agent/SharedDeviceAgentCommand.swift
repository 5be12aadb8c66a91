import ArgumentParser
import FleetAgent
import FleetService
import ProjectVersion

@main
struct SharedDeviceAgentCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "shared-device-agent",
        abstract: "Carries out what the fleet's controller orders, and reports how this device stands.",
        discussion: """
            Talks to the broker on the bus and to the fleet's MQTT server. It can sign out and read, and nothing else. Prints “ready” at its \
            start; ends with SIGTERM or SIGINT.
            Exit status: 0 ended as asked; 64 wrong usage; 69 no bus; 78 configuration, key or state directory cannot be used.
            """,
        version: ProjectVersion.line(of: "shared-device-agent")
    )

    @OptionGroup var program: FleetProgram

    func run() async throws { try await program.serve(AgentService.self, role: "agent") }
}
