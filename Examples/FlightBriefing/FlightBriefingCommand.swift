import ArgumentParser
import ExampleSupport

@main
struct FlightBriefingCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "flight-briefing",
        abstract: "A crew member's briefing folder on a shared device: flight plan, weather, notes, chart.",
        discussion: "Takes commands on standard input, one a line:\n\(Command.overview)"
    )

    @OptionGroup var options: AppOptions

    func run() async throws {
        let app = options.app(name: "flight-briefing", title: "Flight briefing")
        try await app.run { BriefingWorkspace(directory: $0) }
    }
}
