import SharedDevice

/// What the broker's ledger says of one cleanup round, as a table. Pure.
struct Receipts: Sendable {
    let title: String
    let report: CleanupReport

    /// An aligned table with a headline.
    var table: String {
        let head = ["app", "told", "began", "receipt", "what it reported"]
        let rows = report.apps.map { app in
            [
                app.identifier, Self.milliseconds(app.toldAfter), Self.milliseconds(app.begunAfter),
                Self.milliseconds(app.finishedAfter), "\(app.progress.rawValue): \(app.detail ?? "")",
            ]
        }
        let widths = head.indices.map { column in ([head] + rows).map { $0[column].count }.max() ?? 0 }
        let lines = ([head] + rows).map { row in
            zip(row, widths).enumerated().map { column, cell in
                // The last column is text of any length.
                column == head.count - 1 ? cell.0 : cell.0 + String(repeating: " ", count: cell.1 - cell.0.count)
            }.joined(separator: "  ")
        }
        return (["\(title): the round is \(report.outcome.rawValue); ms after the sign-out"] + lines)
            .joined(separator: "\n")
    }

    private static func milliseconds(_ seconds: Double?) -> String {
        seconds.map { "+\(Int(($0 * 1000).rounded()))" } ?? "-"
    }
}
