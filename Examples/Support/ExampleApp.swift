public import ArgumentParser
import FoundationEssentials
import Glibc
import NotifyCenter
import SharedDevice

/// A listener app of the examples: the options of its command line, and how it runs.
public struct ExampleApp: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "The directory of the app's data.",
            discussion: "By default the app's identifier in $XDG_DATA_HOME or ~/.local/share.",
            valueName: "dir"
        )
    )
    var data: String?

    @Option(
        help: ArgumentHelp(
            "The bus that the broker is on: session, system or an address.",
            discussion: "By default $NOTIFY_CENTER_BUS or, without that, the session bus.",
            valueName: "bus"
        )
    )
    var bus: String?

    @Option(
        help: ArgumentHelp(
            "A service that is asked for orders with each unit of work, with a token of this device.",
            discussion: "Examples/ResourceServer is one.",
            valueName: "address"
        )
    )
    var service: String?

    @Option(help: ArgumentHelp("Append the app's events to this file, one JSON object a line.", valueName: "file"))
    var events: String?

    @Flag(help: "Go on after the end of standard input.")
    var stay = false

    @Flag(help: "Do the pending cleanups, and end. The bus passes this if the app does not run at a sign-out.")
    var cleanUp = false

    public init() {}

    public func validate() throws {
        guard let service, OrdersService(service) == nil else { return }
        throw ValidationError("--service takes the address of a server: https, or http on this machine")
    }

    /// Runs the app until it is told to quit.
    ///
    /// - Parameters:
    ///   - name: The app's name, for instance `point-of-sale`; also the end of its identifier.
    ///   - makeWorkspace: Creates the app's own part, in the data directory.
    /// - Throws: An error if the data directory or the event file cannot be used. The app has shown nothing then.
    public func run(
        _ name: String,
        title: String,
        _ makeWorkspace: (_ directory: String) throws -> any UserWorkspace
    ) async throws {
        let identifier = Self.identifier(name)
        let directory = data ?? Self.defaultDirectory(identifier)
        let events = try EventLog(app: name, path: events)
        events.record(.started, detail: directory)
        // Files of this process, including those of SQLite, are for this user only.
        umask(0o077)
        try Files.makeDirectory(directory)
        let workspace = try makeWorkspace(directory)
        try await workspace.prepare()
        let application = SharedDeviceApplication(
            identifier: identifier,
            bus: bus.map(Bus.init(name:)) ?? .fromEnvironment,
            busName: identifier,
            stateDirectory: "\(directory)/state"
        )
        let loop = AccountLoop(
            application,
            workspace: workspace,
            title: title,
            events: events,
            service: service.flatMap(OrdersService.init),
            onlyCleansUp: cleanUp
        )
        let running = Task { try await loop.run() }
        if cleanUp {
            await loop.waitUntilCleanedUp()
        } else if await !obey(LineInput(), loop), stay {
            try await running.value
        }
        running.cancel()
        try await running.value
        events.record(.ended)
    }

    /// Carries out the commands on standard input, one at a time; returns whether one of them was to quit.
    private func obey(_ input: LineInput, _ loop: AccountLoop) async -> Bool {
        while let line = await input.next() {
            let words = line.split(whereSeparator: \.isWhitespace).map(String.init)
            switch (words.first, words.count) {
            case ("signin", 1...2):
                let name = words.count == 2 ? words[1] : nil
                await loop.signIn(name, showsPage: !input.isTerminal) { await input.password("Password for \($0): ") }
            case ("signout", 1): await loop.signOut()
            case ("work", 1): await loop.work()
            case ("screen", 1), (nil, _): await loop.refresh()
            case ("help", 1): await loop.say(Self.commands)
            case ("quit", 1): return true
            default: await loop.say("! there is no command “\(line)”; “help” lists what there is")
            }
        }
        return false
    }

    /// The commands that a person or a test types.
    public static let commands = """
        signin NAME  sign a user in for the whole device; asks for the password
        signin       the same at the device's own prompt, where this app sees no password
        signout      sign out for the whole device
        work         one more unit of work; longer work goes on after it
        screen       show the screen as it is now
        help         this
        quit         end the app; the data of the user stays
        """

    /// The identifier of the example app of this name; also its name on the bus.
    public static func identifier(_ name: String) -> String { "org.notifycenter.example.\(name)" }

    private static func defaultDirectory(_ identifier: String) -> String {
        let environment = ProcessInfo.processInfo.environment
        let base = environment["XDG_DATA_HOME"].flatMap { $0.hasPrefix("/") ? $0 : nil }
        return (base ?? "\(environment["HOME"] ?? ".")/.local/share") + "/" + identifier
    }
}
