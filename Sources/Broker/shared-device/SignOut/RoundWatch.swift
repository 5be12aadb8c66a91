import Glibc
import SharedDevice
import SharedDeviceBroker

/// Follows a round of cleanup in the database.
struct RoundWatch {
    private let store: LedgerStore

    init(database: DeviceDatabase) { store = LedgerStore(database: database) }

    /// Waits until the round is complete, or for `duration`.
    ///
    /// - Parameter progress: hears a line for each step of an app.
    /// - Returns: the round as it is then; `nil` where the database has none of that session.
    func follow(
        _ session: UInt64,
        within duration: Duration,
        progress: (String) throws -> Void
    ) throws -> CleanupReport? {
        let deadline = ContinuousClock.now + duration
        var known: [String: CleanupReport.App] = [:]
        while true {
            let report = try store.ledger().report(of: session)
            for app in report?.apps ?? [] where known[app.identifier] != app {
                known[app.identifier] = app
                try progress(Self.line(app))
            }
            if report?.isComplete == true || .now >= deadline { return report }
            usleep(50_000)
        }
    }

    private static func line(_ app: CleanupReport.App) -> String {
        let time: Double? =
            switch app.progress {
            case .owed: nil
            case .told: app.toldAfter
            case .begun: app.begunAfter
            case .failed, .finished, .waived: app.finishedAfter
            }
        let detail = app.detail.map { "  (\($0))" } ?? ""
        return Terminal.printable("  \(Form.after(time))  \(app.identifier)  \(app.progress.rawValue)\(detail)")
    }
}
