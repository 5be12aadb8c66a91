import ArgumentParser
import Basics
import DBus
import FoundationEssentials
import Glibc
import NotifyCenter
@_spi(Extensions) import SharedDevice

/// An app that follows the account of its device, keeps three files for each session, and obeys commands on standard
/// input (``Commands``). `DIRECTORY/events` records its ``Event``s as lines of JSON, across its processes.
@main
struct ListenerProgram: AsyncParsableCommand {
    static let configuration = CommandConfiguration(commandName: "listener-app")

    @Option var identifier: String
    @Option(help: "The directory of the app's record, user data and events.") var directory: String
    @Option var bus: String?
    @Option(help: "The name by which the bus can start the app.") var busName: String?
    @Option(help: "The point of a cleanup at which the app kills itself: begin, midway or end.") var crash: String?
    @Flag(help: "Begin no cleanup before the command “go”.") var hold = false
    @Flag(help: "End when everything is cleaned up and no account is signed in.") var untilNobody = false

    static func main() async {
        await runCleanupProbe(Array(CommandLine.arguments.dropFirst()))
        await main(nil)
    }

    func run() async throws {
        let journal = Journal(path: "\(directory)/events")
        journal.note(Event("start"))
        let bus = bus.map { Bus(name: $0) } ?? .fromEnvironment
        let application = SharedDeviceApplication(
            identifier: identifier,
            bus: bus,
            busName: busName,
            stateDirectory: "\(directory)/state"
        )
        let crash = crash
        let data = try UserDataDirectory(path: "\(directory)/data") { checkpoint in
            // At this point the first file is deleted, and the others are not.
            if case .unlinked = checkpoint, crash == "midway" { kill(getpid(), SIGKILL) }
        }
        let gate = Gate(isOpen: !hold)
        let desk = Desk(directory: directory, data: data, journal: journal)
        let cleanup = CleanupCoordinator()
        try cleanup.register("files") { cleanup in
            var event = Event("cleanup")
            event.previous = cleanup.accounts.map(\.username)
            event.account = cleanup.change.current?.username
            event.epoch = cleanup.change.epoch
            journal.note(event)
            if crash == "begin" { kill(getpid(), SIGKILL) }
            await gate.pass()
            let removed = try await data.remove(cleanup.accounts)
            journal.note(Event("cleaned", detail: "\(removed)"))
            if crash == "end" { kill(getpid(), SIGKILL) }
            return removed
        }
        let commands = Commands(application: application, desk: desk, gate: gate, journal: journal, bus: bus)
        let reader = QuietThread.start("commands") {
            while let line = readLine() {
                let words = line.split(separator: " ").map(String.init)
                if words.first == "quit" { Glibc.exit(0) }
                Task { await commands.obey(words) }
            }
        }
        guard reader != nil else { throw ExitCode(71) }
        await application.follow(cleanup) { state in
            try await desk.show(state)
            if untilNobody, state == .nobody { Glibc.exit(0) }
        }
    }
}
