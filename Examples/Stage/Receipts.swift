import DeviceConfiguration
@_spi(Extensions) public import SharedDevice
@_spi(Extensions) import SharedDeviceTestKit

/// The broker's record of one cleanup round, as a table. Pure.
public struct Receipts: Sendable {
    public let title: String
    /// The special circumstances of the sign-out.
    public let circumstances: String
    public let report: CleanupReport

    /// Waits for the end of the last round.
    public init(_ title: String, _ circumstances: String, from application: SharedDeviceApplication) async throws {
        guard let report = try await application.waitForCleanup(within: .seconds(60)) else {
            throw DemoFailure("the broker knows of no sign-out")
        }
        self.title = title
        self.circumstances = circumstances
        self.report = report
    }

    public var table: String {
        "\(title): the round is \(report.outcome.rawValue)\n"
            + Text.table(["app", "told", "began", "receipt", "what it reported"], report.apps.map(row))
    }

    /// All rounds in one table, each with a line about it.
    public static func summary(_ rounds: [Receipts]) -> [String] {
        let rows = rounds.map { round in
            round.report.apps.map { app in
                let row = round.row(app)
                return ["  " + row[0], row[1], row[3], app.detail ?? app.progress.rawValue]
            }
        }
        let table = Text.table(["", "TOLD", "CLEAN", "WHAT IT REPORTED"], rows.flatMap(\.self)).split(separator: "\n")
        var lines = table.prefix(1).map(String.init)
        var rest = table.dropFirst()
        for round in rounds {
            lines.append("\(round.title): \(round.circumstances)")
            lines += rest.prefix(round.report.apps.count).map(String.init)
            rest = rest.dropFirst(round.report.apps.count)
        }
        return lines
    }

    private func row(_ app: CleanupReport.App) -> [String] {
        let names = AppNames(report.apps.map(\.identifier))
        return [names[app.identifier]] + [app.toldAfter, app.begunAfter, app.finishedAfter].map(Self.milliseconds)
            + ["\(app.progress.rawValue): \(app.detail ?? "")"]
    }

    private static func milliseconds(_ seconds: Double?) -> String {
        seconds.map { Text.milliseconds($0 * 1000) } ?? "–"
    }
}
