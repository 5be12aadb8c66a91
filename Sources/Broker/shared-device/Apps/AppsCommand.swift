import ArgumentParser

struct AppsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "apps",
        abstract: "Shows which apps hold or owe what, and settles what an app will never settle itself.",
        subcommands: [AppsListCommand.self, AppsWaiveCommand.self],
        defaultSubcommand: AppsListCommand.self
    )
}
