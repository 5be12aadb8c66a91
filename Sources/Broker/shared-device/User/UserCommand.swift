import ArgumentParser

struct UserCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "user",
        abstract: "Keeps the list of people who may sign in on this device.",
        subcommands: [
            UserAddCommand.self, UserListCommand.self, UserRemoveCommand.self, UserPasswordCommand.self,
            UserDisableCommand.self, UserEnableCommand.self, UserRoleCommand.self,
        ]
    )
}
