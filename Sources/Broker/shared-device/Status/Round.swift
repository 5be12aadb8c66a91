import Foundation
import SharedDevice

/// A round of cleanup as commands show it. The properties' names are the JSON's keys, which programs rely on; times are in seconds since the
/// session ended.
struct Round: Encodable {
    struct App: Encodable {
        let identifier: String
        let progress: CleanupReport.Progress
        let toldAfter: Double?
        let begunAfter: Double?
        let finishedAfter: Double?
        let detail: String?
        /// `nil` where no broker tells.
        let running: Bool?
    }

    let session: UInt64
    let endedAt: Date
    let outcome: CleanupReport.Outcome
    let apps: [App]

    init(_ report: CleanupReport, knowsRunning: Bool) {
        session = report.session
        endedAt = report.endedAt
        outcome = report.outcome
        apps = report.apps.map { app in
            App(
                identifier: app.identifier,
                progress: app.progress,
                toldAfter: app.toldAfter,
                begunAfter: app.begunAfter,
                finishedAfter: app.finishedAfter,
                detail: app.detail,
                running: knowsRunning ? app.isRunning : nil
            )
        }
    }

    var headline: String {
        let outcome = Terminal.coloured(self.outcome.rawValue, self.outcome == .complete ? .green : .yellow)
        return "cleanup after session \(session), which ended \(Form.time(endedAt)): \(outcome)"
    }

    var table: Table {
        var table = Table("APP", "PROGRESS", "TOLD", "BEGUN", "FINISHED", "RUNNING", "DETAIL")
        for app in apps {
            let colour: Terminal.Colour? =
                switch app.progress {
                case .finished, .waived: .green
                case .failed: .red
                default: .yellow
                }
            let times = [app.toldAfter, app.begunAfter, app.finishedAfter].map(Form.after)
            let running = app.running.map { $0 ? "yes" : "no" } ?? "unknown"
            table.add([app.identifier, app.progress.rawValue] + times + [running, app.detail ?? "-"], colour)
        }
        return table
    }
}
