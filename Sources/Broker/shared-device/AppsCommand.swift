import ArgumentParser
import Basics
import BrokerCore
import CommandParts
import DBus
import DeviceConfiguration
import DeviceStorage
import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice
import SharedDeviceBroker

struct AppsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "apps",
        abstract: "Shows the data that apps hold and the cleanups that they owe, waives cleanups, and enrols apps.",
        subcommands: [AppsListCommand.self, AppsWaiveCommand.self, AppsEnrolCommand.self],
        defaultSubcommand: AppsListCommand.self
    )
}

struct AppsListCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "list",
        abstract: "Lists the apps, in the order of their identifiers, with the cleanups that they owe.",
        discussion: "Reads the database, also while no broker runs. Only a running broker can tell which apps run."
    )

    @Flag(help: "As a JSON array, for programs.")
    var json = false

    @OptionGroup var names: NameOptions
    @OptionGroup var state: StateOptions
    @OptionGroup var bus: BusOptions

    func execute() throws {
        let database = try state.openDatabase(.existing)
        let running = BrokerView(bus).running
        let apps = KnownApp.all(in: try DeviceStore.read(database).ledger, running: running)
        let known = AppNames(apps.map(\.identifier))
        let table = KnownApp.table(apps) { names.name($0, known) }
        try emit(json ? Form.json(apps) : table.lines.joined(separator: "\n"))
    }
}

struct AppsWaiveCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "waive",
        abstract: "Waives the cleanup that an app owes, by an administrator's decision.",
        discussion: "For an app that was removed, or whose data was deleted by hand. The log keeps the reason."
    )

    @Argument(help: ArgumentHelp("The app, as “apps” lists it, or its identifier.", valueName: "app"))
    var app: String

    @Option(help: ArgumentHelp("Only the cleanup after the session of this epoch.", valueName: "epoch"))
    var session: UInt64?

    @Option(help: ArgumentHelp("The reason, for the log. Do not name a person.", valueName: "text"))
    var reason: String

    @Flag(help: "Prints a JSON object, for programs.")
    var json = false

    @OptionGroup var state: StateOptions
    @OptionGroup var bus: BusOptions

    func validate() throws { if reason.isEmpty { throw ValidationError("--reason needs a text") } }

    private struct Waived: Encodable {
        let app: String
        let sessions: [UInt64]
    }

    func execute() throws {
        // Without the database, the broker interprets the typed name.
        let database = try? state.openDatabase(.existing)
        let names = database.flatMap { try? DeviceStore.read($0) }.map { AppNames($0.ledger) }
        let key = try names?.key(for: app)
        let shown = (key.flatMap { names?[$0] } ?? app).printable
        var request: BrokerProtocol.Fields = ["app": .string(key ?? app), "reason": .string(reason)]
        if let session { request["session"] = .uint64(session) }
        let answer = try bus.connect().callAndWait(.waive, request, attempted: "waive the cleanup of \(shown)")
        let sessions = (answer["sessions"]?.elementsValue ?? []).compactMap(\.unsignedValue)
        let list = sessions.map { "session \($0)" }.joined(separator: ", ")
        if json {
            try emit(Form.json(Waived(app: key ?? app, sessions: sessions)))
        } else if !sessions.isEmpty {
            try emit("waived what \(shown) owed of \(list)")
        }
        guard sessions.isEmpty else { return }
        let scope = session.map { " of session \($0)" } ?? ""
        let isUnknown = names != nil && key == nil
        throw CommandFailure(
            EX_NOINPUT,
            isUnknown
                ? "there is no app \(shown); “shared-device apps” lists all apps"
                : "\(shown) owes nothing\(scope); see “shared-device apps”"
        )
    }
}

/// The ledger's information about an app. The properties' names are the JSON's keys, which programs rely on.
struct KnownApp: Encodable {
    struct Duty: Encodable {
        let session: UInt64
        let account: String?
        let progress: CleanupReport.Progress
    }

    let identifier: String
    /// The user that runs the app; `nil` if it holds no data and owes no cleanup.
    let user: UInt32?
    /// `nil` if no broker responds.
    let running: Bool?
    /// Whether the app received the account that is signed in.
    let holdsCurrent: Bool
    /// The sessions whose cleanup the app owes, oldest first.
    let owes: [Duty]
    let lastToldAt: Date?
    let lastCleanedAt: Date?

    /// All apps that are in the ledger or running, by name, one entry for each of an app's users.
    static func all(in ledger: CleanupLedger, running: Set<String>?) -> [KnownApp] {
        let listed = ledger.parts.values.reduce(into: Set()) { $0.formUnion($1.keys) }
        let others = (running ?? []).subtracting(listed.map(\.app))
        let all = listed.map { ($0.app, $0.user) as (String, UInt32?) } + others.map { ($0, nil) }
        return all.sorted { ($0.0, $0.1 ?? 0) < ($1.0, $1.1 ?? 0) }
            .map { KnownApp($0, user: $1, in: ledger, running: running) }
    }

    private init(_ identifier: String, user: UInt32?, in ledger: CleanupLedger, running: Set<String>?) {
        (self.identifier, self.user) = (identifier, user)
        self.running = running?.contains(identifier)
        let parts = ledger.parts.compactMap { number, participants in
            user.flatMap { participants[Participant(app: identifier, user: $0)] }.map { (number, $0) }
        }.sorted { $0.0 < $1.0 }
        holdsCurrent = parts.contains { $0.1.progress == nil }
        owes = parts.compactMap { epoch, part in
            guard let progress = part.progress, !progress.isSettled else { return nil }
            return Duty(session: epoch, account: ledger.sessions[epoch]?.account?.username, progress: progress)
        }
        lastToldAt = parts.compactMap(\.1.toldAt).max()
        lastCleanedAt = parts.compactMap { $0.1.progress == .finished ? $0.1.finishedAt : nil }.max()
    }

    /// - Parameter name: Returns the displayed name of an app.
    static func table(_ apps: [KnownApp], _ name: (String) -> String) -> Table {
        var table = Table("APP", "USER", "RUNNING", "HOLDS", "OWES", "LAST TOLD", "LAST CLEANED")
        for app in apps {
            let owes = app.owes.map { duty in
                "session \(duty.session)\(duty.account.map { " of \($0)" } ?? "") (\(duty.progress.rawValue))"
            }
            table.add(
                [
                    name(app.identifier), app.user.map { "\($0)" } ?? "-",
                    app.running.map { $0 ? "yes" : "no" } ?? "unknown",
                    app.holdsCurrent ? "yes" : "-", owes.isEmpty ? "-" : owes.joined(separator: ", "),
                    app.lastToldAt.map(Form.time) ?? "-", app.lastCleanedAt.map(Form.time) ?? "-",
                ],
                app.owes.isEmpty ? nil : .yellow
            )
        }
        return table
    }
}
