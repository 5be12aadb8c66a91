import ArgumentParser
import ExampleSupport

@main
struct FlightBriefingCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "flight-briefing",
        abstract: "A crew member's briefing folder on a shared device: flight plan, weather, notes, chart.",
        discussion: "Takes commands on standard input, one a line:\n\(Command.overview)"
    )

    @Option(
        help: ArgumentHelp(
            "Where its data is.",
            discussion: "Otherwise its identifier in $XDG_DATA_HOME or ~/.local/share.",
            valueName: "dir"
        )
    )
    var data: String?

    @Option(
        help: ArgumentHelp(
            "The bus that the broker is on: session, system or an address.",
            discussion: "Otherwise $NOTIFY_CENTER_BUS, else the session bus.",
            valueName: "bus"
        )
    )
    var bus: String?

    @Option(help: ArgumentHelp("Append what happens to this file, one JSON object a line.", valueName: "file"))
    var events: String?

    @Flag(help: "Go on after the end of standard input.")
    var stay = false

    func run() async throws {
        let app = ExampleApp(
            name: "flight-briefing",
            title: "Flight briefing",
            data: data,
            bus: bus,
            events: events,
            stays: stay
        )
        try await app.run { BriefingWorkspace(directory: $0) }
    }
}
