import ArgumentParser
import FleetController
import FleetService
import ProjectVersion

@main
struct SharedDeviceControllerCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "shared-device-controller",
        abstract: "Gives a fleet of shared devices its orders, and keeps what they report.",
        discussion: """
            Serves org.notifycenter.SharedDeviceFleet1, which “shared-device fleet” asks. Prints “ready” when it owns that name; ends with \
            SIGTERM or SIGINT.
            Exit status: 0 ended as asked; 64 wrong usage; 69 no bus, or another controller serves it; 78 configuration, key or state \
            directory cannot be used.
            """,
        version: ProjectVersion.line(of: "shared-device-controller")
    )

    @OptionGroup var program: FleetProgram

    func run() async throws { try await program.serve(ControllerService.self, role: "controller") }
}
