import ArgumentParser

struct ConfigurationCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "configuration",
        abstract: "Looks at what the device's management has set.",
        subcommands: [ConfigurationCheckCommand.self]
    )
}
