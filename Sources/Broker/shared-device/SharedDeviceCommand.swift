import ArgumentParser
import ProjectVersion

@main
struct SharedDeviceCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "shared-device",
        abstract: "Administers a shared device, and checks apps for one.",
        discussion: """
            Exit status: 0 done; 64 wrong usage; 65 data that cannot be taken; 66 nothing there; 67 unknown user; \
            69 the broker does not answer, or what is needed does not start; 70 the broker failed; 73 cannot be created; \
            74 input or output failed; 75 not now, try again later; 77 no permission.
            """,
        version: ProjectVersion.line(of: "shared-device"),
        subcommands: [
            StatusCommand.self, WatchCommand.self, MetricsCommand.self, FollowCommand.self, RunCommand.self,
            SessionTracesCommand.self,
            SignOutCommand.self,
            AppsCommand.self, LogCommand.self, UserCommand.self, JoinCommand.self, LeaveCommand.self,
            ConfigurationCommand.self, ProviderCommand.self, CheckCommand.self, FleetCommand.self,
        ]
    )
}
