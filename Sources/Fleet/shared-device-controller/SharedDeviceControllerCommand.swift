import ArgumentParser
import DBusTransport
import Fleet
import FleetController
import Glibc
import ProjectVersion

@main
struct SharedDeviceControllerCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "shared-device-controller",
        abstract: "Gives a fleet of shared devices its orders, and keeps what they report.",
        discussion: """
            Serves org.notifycenter.SharedDeviceFleet1, which “shared-device fleet” asks. Prints “ready” when it owns that name; ends with \
            SIGTERM or SIGINT.
            Exit status: 0 ended as asked; 64 wrong usage; 69 no bus, or another controller serves it; 78 configuration or state directory \
            cannot be used.
            """,
        version: ProjectVersion.line(of: "shared-device-controller")
    )

    @Option(help: ArgumentHelp("The bus to serve: session, system, or an address.", valueName: "bus"))
    var bus: String = "system"

    @Option(name: .customLong("configuration"), help: ArgumentHelp("The configuration.", valueName: "file"))
    var file: String = "/etc/shared-device/fleet-controller.json"

    @Option(name: .customLong("state"), help: ArgumentHelp("The directory of its database.", valueName: "dir"))
    var directory: String = "/var/lib/shared-device-controller"

    func run() async throws {
        signal(SIGPIPE, SIG_IGN)
        let end = try EndSignals()
        let service: ControllerService
        do {
            let configuration = try FleetFiles.configuration(file)
            service = try ControllerService(configuration, stateDirectory: directory, bus: Bus(name: bus)) { log($0) }
            try await service.start()
        } catch {
            log("\(error)")
            throw ExitCode(error is FleetRefusal ? EX_CONFIG : EX_UNAVAILABLE)
        }
        // Whoever started it may have closed the other end.
        _ = Array("ready\n".utf8).withUnsafeBytes { write(STDOUT_FILENO, $0.baseAddress, $0.count) }
        await end.first()
        service.stop()
    }
}

/// Writes a line for the administrator.
private func log(_ line: String) {
    let line = Array("shared-device-controller: \(line)\n".utf8)
    // If standard error is closed, the line is lost.
    _ = write(STDERR_FILENO, line, line.count)
}
