import CommandParts
import DBus
import Foundation
@_spi(Extensions) import SharedDevice

/// The time of Ada's sign-out.
let ended = Date(timeIntervalSince1970: 1_000_000)

func answer(_ more: BrokerProtocol.Fields = [:], apps: [BrokerProtocol.Fields] = []) -> BrokerProtocol.Fields {
    let fields: BrokerProtocol.Fields = [
        "revision": .uint64(4), "time": .double(1_000_060), "mode": .string("shared"), "epoch": .uint64(8),
        "organization": .string("Contoso"), "cleanupPolicy": .string("strict"), "rounds": .array([.uint64(7)], of: "t"),
        "apps": .array(apps.map { .fields($0) }, of: "a{sv}"),
    ]
    return fields.merging(more) { $1 }
}

func account(_ name: String) -> DBusValue { .fields(["identifier": .string("1"), "username": .string(name)]) }

func app(_ name: String, runs: Bool = true, holds: Bool = false, owes: [UInt64] = []) -> BrokerProtocol.Fields {
    [
        "identifier": .string("org.example.\(name)"), "user": .uint32(1000), "isRunning": .boolean(runs),
        "holdsData": .boolean(holds), "owes": .array(owes.map { .uint64($0) }, of: "t"),
    ]
}

func entry(_ sequence: UInt64, _ event: String, app: String? = nil, detail: String? = nil) -> DBusValue {
    var fields: BrokerProtocol.Fields = [
        "sequence": .uint64(sequence), "at": .double(1_000_000 + Double(sequence)), "event": .string(event),
        "session": .uint64(7),
    ]
    fields["app"] = app.map { .string($0) }
    fields["detail"] = detail.map { .string($0) }
    return .fields(fields)
}

func observedEntries(_ values: [DBusValue]) -> [ObservedEntry] {
    ObservedEntry.all(["entries": .array(values, of: "a{sv}")])
}

/// The round after Ada's session.
func adasRound(_ outcome: CleanupReport.Outcome, _ apps: CleanupReport.App...) -> CleanupReport {
    CleanupReport(session: 7, endedAt: ended, outcome: outcome, apps: apps)
}

/// The time of day in UTC.
func clock(_ date: Date) -> String {
    date.formatted(Date.ISO8601FormatStyle().time(includingFractionalSeconds: false))
}

extension DeviceView {
    /// A signed-out device, a minute after Ada's session. Notes is clean, mail has failed and photos is not running.
    static func cleaning(_ more: BrokerProtocol.Fields = [:]) -> DeviceView {
        var view = DeviceView()
        let apps = [app("mail", owes: [7]), app("notes"), app("photos", runs: false, owes: [7])]
        let held = DBusValue.array([.string("org.example.mail"), .string("org.example.photos")], of: "s")
        let mail = CleanupReport.App(
            identifier: "org.example.mail",
            progress: .failed,
            toldAfter: 0.1,
            begunAfter: 12,
            finishedAfter: 30,
            isRunning: true
        )
        let notes = CleanupReport.App(
            identifier: "org.example.notes",
            progress: .finished,
            toldAfter: 0.1,
            begunAfter: 0.2,
            finishedAfter: 15,
            isRunning: true
        )
        let photos = CleanupReport.App(identifier: "org.example.photos", progress: .owed)
        let device = ObservedDevice(answer(["signInHeldFor": held].merging(more) { $1 }, apps: apps))
        view.take(device, adasRound(.open, mail, notes, photos))
        view.add(
            observedEntries([
                entry(1, "signed-out", detail: "the app notes"),
                entry(15, "finished", app: "org.example.notes", detail: "3 files"),
                entry(30, "failed", app: "org.example.mail", detail: "disk full"),
            ])
        )
        return view
    }
}

/// Certificates in files of their own; `nil` stands for an unknown end.
func certificates(_ ends: (use: String, end: DBusValue?)...) -> DBusValue {
    .array(
        ends.map { use, end in
            var fields: BrokerProtocol.Fields = ["use": .string(use), "file": .string("/\(use).pem")]
            fields["end"] = end
            return .fields(fields)
        },
        of: "a{sv}"
    )
}
