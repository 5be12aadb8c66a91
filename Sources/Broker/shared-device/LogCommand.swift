import ArgumentParser
import Basics
import BrokerCore
import CommandParts
import DeviceConfiguration
import DeviceStorage
import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice
import SharedDeviceBroker

struct LogCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "log",
        abstract: "Shows the device's log: who signed in and out, and what each app did about it.",
        discussion: """
            Reads the database, also while no broker runs. Entries of a broker that runs may come 0.2 seconds late. An account \
            that was removed is shown by its number.
            Events: \(AuditEntry.Event.allCases.map(\.rawValue).joined(separator: ", ")).
            """
    )

    @Flag(help: "Continues with new entries, until it is interrupted.")
    var follow = false

    @Option(help: ArgumentHelp("Only the session that began with this epoch.", valueName: "epoch"))
    var session: UInt64?

    @Option(help: ArgumentHelp("Only this app, as the log shows it, or by its identifier.", valueName: "app"))
    var app: String?

    @Option(
        help: ArgumentHelp("Only this event.", valueName: "event"),
        transform: { text in
            guard let event = AuditEntry.Event(rawValue: text) else {
                throw ValidationError("there is no event “\(text)”; see --help")
            }
            return event
        }
    )
    var event: AuditEntry.Event?

    @Option(help: ArgumentHelp("Only this many of the latest entries.", valueName: "count"))
    var last: Int?

    @Option(
        help: ArgumentHelp(
            "Only entries since this time: 2026-11-21T08:00:00Z, 2026-11-21, or an age: 90s, 10m, 2h, 3d.",
            valueName: "time"
        )
    )
    var since: PointInTime?

    @Flag(help: "One JSON object for each line, for programs.")
    var json = false

    @OptionGroup var names: NameOptions
    @OptionGroup var state: StateOptions

    func validate() throws {
        if let last, last < 0 { throw ValidationError("--last needs a number that is not negative") }
    }

    func execute() throws {
        let database = try state.openDatabase(.existing)
        let ledger = try DeviceStore.read(database).ledger
        // Apps that have left the ledger are still in the log.
        var apps = Set(app == nil ? [] : try database.auditLog().compactMap(\.entry.app))
        let wanted = try app.map { try AppNames(ledger, and: apps).key(for: $0) ?? $0 }
        var filter = AuditFilter(last: last)
        (filter.since, filter.session, filter.app, filter.event) = (since?.date, session, wanted, event)
        // Read first, so that an entry that is added between the two reads is not missed.
        var newest = try database.auditLog(AuditFilter(last: 1)).last?.sequence ?? 0
        var lines = try database.auditLog(filter)
        filter.last = nil
        while true {
            apps.formUnion(lines.compactMap(\.entry.app))
            let known = AppNames(ledger, and: apps)
            for line in lines {
                try emit(json ? Form.json(line, pretty: false) : line.text { names.name($0, known) })
            }
            guard follow else { return }
            newest = max(newest, lines.last?.sequence ?? 0)
            filter.after = newest
            usleep(200_000)
            lines = try database.auditLog(filter)
        }
    }
}

extension AuditLine: Encodable {
    /// The JSON's keys, which programs rely on.
    private enum Key: CodingKey { case sequence, at, event, session, app, account, detail }

    package func encode(to encoder: any Encoder) throws {
        var values = encoder.container(keyedBy: Key.self)
        try values.encode(sequence, forKey: .sequence)
        try values.encode(entry.at, forKey: .at)
        try values.encode(entry.event.rawValue, forKey: .event)
        try values.encodeIfPresent(entry.session, forKey: .session)
        try values.encodeIfPresent(entry.app, forKey: .app)
        try values.encodeIfPresent(account, forKey: .account)
        try values.encodeIfPresent(entry.detail, forKey: .detail)
    }

    /// - Parameter name: Returns the displayed name of an app.
    fileprivate func text(_ name: (String) -> String) -> String {
        let colour: Terminal.Colour? =
            switch entry.event {
            case .failed, .notEnforced, .refused: .red
            case .enforced, .expired, .interrupted, .waived: .yellow
            case .completed: .green
            default: nil
            }
        let event = entry.event.rawValue
        let padded = event + String(repeating: " ", count: max(0, 12 - event.count))
        let session = entry.session.map { "session \($0)" }
        let further = [session, entry.app.map(name), account, entry.detail.map { "(\($0))" }]
        let parts = [Form.time(entry.at), Terminal.coloured(padded, colour)] + further.compactMap { $0?.printable }
        return parts.joined(separator: "  ")
    }
}

/// A time on a command line: ISO 8601, a day, or how long ago.
struct PointInTime: ExpressibleByArgument {
    let date: Date

    init?(argument: String) {
        guard let date = Self.ago(argument) ?? Self.calendar(argument) else { return nil }
        self.date = date
    }

    /// `90s`, `10m`, `2h`, `3d`.
    private static func ago(_ text: String) -> Date? {
        let units: [Character: Double] = ["s": 1, "m": 60, "h": 3600, "d": 86400]
        guard let unit = text.last.flatMap({ units[$0] }), let count = UInt32(text.dropLast()) else { return nil }
        return Date(timeIntervalSinceNow: -Double(count) * unit)
    }

    private static func calendar(_ text: String) -> Date? {
        let instants = [Date.ISO8601FormatStyle(), Date.ISO8601FormatStyle(includingFractionalSeconds: true)]
        if let date = instants.lazy.compactMap({ try? $0.parse(text) }).first { return date }
        // A day begins at local midnight.
        let midnight = try? Date.ISO8601FormatStyle().year().month().day().parse(text)
        return midnight.map { LocalTime.device.instant(ofClock: $0) }
    }
}
