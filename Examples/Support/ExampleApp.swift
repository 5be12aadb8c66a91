import FoundationEssentials
import Glibc
package import NotifyCenter
import SharedDevice

/// A listener app of the examples: its command line's choices, and its run.
package struct ExampleApp: Sendable {
    /// The app's name, for instance `point-of-sale`; also the end of its identifier.
    package var name: String
    /// What its screen is headed with.
    package var title: String
    /// Where its data is.
    package var dataDirectory: String
    /// Where the broker is.
    package var bus: Bus
    /// Where its events are written; `nil` for nowhere.
    package var eventsPath: String?
    /// Whether it goes on after the end of its standard input.
    package var stays: Bool
    /// Whether it ends as soon as it owes no cleanup.
    package var onlyCleansUp: Bool

    /// - Parameters:
    ///   - data: the data directory; `nil` for `$XDG_DATA_HOME` (`~/.local/share`) and the app's identifier.
    ///   - bus: as ``Bus/init(name:)`` takes it; `nil` for the environment's choice.
    package init(
        name: String,
        title: String,
        data: String?,
        bus: String?,
        events: String?,
        stays: Bool,
        onlyCleansUp: Bool = false
    ) {
        self.name = name
        self.title = title
        dataDirectory = data ?? Self.defaultDirectory(Self.identifier(name))
        self.bus = bus.map(Bus.init(name:)) ?? .fromEnvironment
        eventsPath = events
        self.stays = stays
        self.onlyCleansUp = onlyCleansUp
    }

    /// Runs the app until it is told to quit.
    ///
    /// - Parameter makeWorkspace: makes the app's own part, in the data directory.
    /// - Throws: where the data directory or the event file cannot be used. Nothing was shown then.
    package func run(_ makeWorkspace: (_ directory: String) throws -> any UserWorkspace) async throws {
        let events = try EventLog(app: name, path: eventsPath)
        events.record(.started, detail: dataDirectory)
        // Whatever makes a file, SQLite included: it is the business of this user only.
        umask(0o077)
        try Files.makeDirectory(dataDirectory)
        let workspace = try makeWorkspace(dataDirectory)
        try await workspace.prepare()
        let application = SharedDeviceApplication(
            identifier: Self.identifier(name),
            bus: bus,
            busName: Self.identifier(name),
            stateDirectory: "\(dataDirectory)/state"
        )
        let loop = AccountLoop(
            application,
            workspace: workspace,
            title: title,
            events: events,
            onlyCleansUp: onlyCleansUp
        )
        let running = Task { await loop.run() }
        if onlyCleansUp {
            await loop.waitUntilCleanedUp()
        } else if await !obey(LineInput(), loop), stays {
            await running.value
        }
        running.cancel()
        await running.value
        events.record(.ended)
    }

    /// Carries out the commands on standard input, one after the other; returns whether one of them was to quit.
    private func obey(_ input: LineInput, _ loop: AccountLoop) async -> Bool {
        while let line = await input.next() {
            switch Command(line) {
            case .signIn(let name):
                await loop.signIn(name) { await input.password("Password for \(name): ") }
            case .signOut: await loop.signOut()
            case .work: await loop.work()
            case .screen, .nothing: await loop.refresh()
            case .help: await loop.say(Command.overview)
            case .quit: return true
            case .unknown(let line): await loop.say("! there is no command “\(line)”; “help” lists what there is")
            }
        }
        return false
    }

    /// The identifier of the example app of this name; also its name on the bus.
    package static func identifier(_ name: String) -> String { "org.notifycenter.example.\(name)" }

    private static func defaultDirectory(_ identifier: String) -> String {
        let environment = ProcessInfo.processInfo.environment
        let base = environment["XDG_DATA_HOME"].flatMap { $0.hasPrefix("/") ? $0 : nil }
        return (base ?? "\(environment["HOME"] ?? ".")/.local/share") + "/" + identifier
    }
}
