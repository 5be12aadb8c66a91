import ArgumentParser
import DBusTransport
import Glibc
import SharedDevice
import SharedDeviceBroker

struct AppsWaiveCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "waive",
        abstract: "Declares the cleanup that an app owes done, by an administrator's word.",
        discussion: "For an app that was removed, or whose data was deleted by hand. The log keeps the reason."
    )

    @Argument(help: ArgumentHelp("The app's identifier, as “apps” lists it.", valueName: "app"))
    var app: String

    @Option(help: ArgumentHelp("Only the cleanup after the session of this epoch.", valueName: "epoch"))
    var session: UInt64?

    @Option(help: ArgumentHelp("Why, for the log. Name no person.", valueName: "text"))
    var reason: String

    @Flag(help: "Prints a JSON object, for programs.")
    var json = false

    @OptionGroup var bus: BusOptions

    func validate() throws {
        if reason.isEmpty { throw ValidationError("--reason needs a text") }
    }

    private struct Waived: Encodable {
        let app: String
        let sessions: [UInt64]
    }

    func run() throws {
        try reportingFailure {
            var request: BrokerProtocol.Fields = ["app": .string(app), "reason": .string(reason)]
            if let session { request["session"] = .uint64(session) }
            let answer = try bus.connect()
                .callAndWait(.waive, request, attempted: "waive the cleanup of \(app)")
            let sessions = (answer["sessions"]?.elementsValue ?? []).compactMap(\.unsignedValue)
            if json {
                try emit(Form.json(Waived(app: app, sessions: sessions)))
            } else if !sessions.isEmpty {
                let names = sessions.map { "session \($0)" }.joined(separator: ", ")
                try emit("waived what \(Terminal.printable(app)) owed of \(names)")
            }
            guard sessions.isEmpty else { return }
            let scope = session.map { " of session \($0)" } ?? ""
            throw CommandFailure(
                status: EX_NOINPUT,
                description: "\(Terminal.printable(app)) owes nothing\(scope); see “shared-device apps”"
            )
        }
    }
}
