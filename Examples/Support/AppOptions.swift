package import ArgumentParser

/// What every example app takes on its command line.
package struct AppOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Where its data is.",
            discussion: "Otherwise its identifier in $XDG_DATA_HOME or ~/.local/share.",
            valueName: "dir"
        )
    )
    package var data: String?

    @Option(
        help: ArgumentHelp(
            "The bus that the broker is on: session, system or an address.",
            discussion: "Otherwise $NOTIFY_CENTER_BUS, else the session bus.",
            valueName: "bus"
        )
    )
    package var bus: String?

    @Option(help: ArgumentHelp("Append what happens to this file, one JSON object a line.", valueName: "file"))
    package var events: String?

    @Flag(help: "Go on after the end of standard input.")
    package var stay = false

    @Flag(help: "Clean up what is owed and end: what the bus starts the app with when it does not run at a sign-out.")
    package var cleanUp = false

    package init() {}

    /// The app of this name that these options describe.
    package func app(name: String, title: String) -> ExampleApp {
        ExampleApp(name: name, title: title, data: data, bus: bus, events: events, stays: stay, onlyCleansUp: cleanUp)
    }
}
