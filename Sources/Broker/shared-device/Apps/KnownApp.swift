import Foundation
import SharedDevice
import SharedDeviceBroker

/// What the ledger knows of an app. The properties' names are the JSON's keys, which programs rely on.
struct KnownApp: Encodable {
    struct Duty: Encodable {
        let session: UInt64
        let account: String?
        let progress: CleanupReport.Progress
    }

    let identifier: String
    /// `nil` where no broker tells.
    let running: Bool?
    /// Whether it was given the account that is signed in.
    let holdsCurrent: Bool
    /// The sessions whose cleanup it owes, oldest first.
    let owes: [Duty]
    let lastToldAt: Date?
    let lastCleanedAt: Date?

    /// All apps that the ledger names or that run, in the order of their names.
    static func all(in ledger: CleanupLedger, running: Set<String>?) -> [KnownApp] {
        let names = ledger.participations.values.reduce(into: running ?? []) { $0.formUnion($1.keys) }
        return names.sorted().map { KnownApp($0, in: ledger, running: running) }
    }

    private init(_ identifier: String, in ledger: CleanupLedger, running: Set<String>?) {
        self.identifier = identifier
        self.running = running?.contains(identifier)
        let parts = ledger.participations.compactMap { epoch, apps in apps[identifier].map { (epoch, $0) } }
            .sorted { $0.0 < $1.0 }
        holdsCurrent = parts.contains { $0.1.progress == nil }
        owes = parts.compactMap { epoch, part in
            guard let progress = part.progress, !progress.isSettled else { return nil }
            return Duty(session: epoch, account: ledger.sessions[epoch]?.account?.username, progress: progress)
        }
        lastToldAt = parts.compactMap(\.1.toldAt).max()
        lastCleanedAt = parts.compactMap { $0.1.progress == .finished ? $0.1.finishedAt : nil }.max()
    }

    static func table(_ apps: [KnownApp]) -> Table {
        var table = Table("APP", "RUNNING", "HOLDS", "OWES", "LAST TOLD", "LAST CLEANED")
        for app in apps {
            let owes = app.owes.map { duty in
                "session \(duty.session)\(duty.account.map { " of \($0)" } ?? "") (\(duty.progress.rawValue))"
            }
            table.add(
                [
                    app.identifier, app.running.map { $0 ? "yes" : "no" } ?? "unknown",
                    app.holdsCurrent ? "yes" : "-", owes.isEmpty ? "-" : owes.joined(separator: ", "),
                    app.lastToldAt.map(Form.time) ?? "-", app.lastCleanedAt.map(Form.time) ?? "-",
                ],
                app.owes.isEmpty ? nil : .yellow
            )
        }
        return table
    }
}
