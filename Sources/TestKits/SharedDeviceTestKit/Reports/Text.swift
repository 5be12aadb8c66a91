/// Times and tables for people.
enum Text {
    /// Milliseconds, for instance `12.3 ms`; a dash for what did not happen.
    static func milliseconds(_ duration: Duration?) -> String { duration.map { milliseconds(number($0)) } ?? "–" }

    /// Milliseconds, from ten seconds on whole ones.
    static func milliseconds(_ milliseconds: Double) -> String {
        guard milliseconds.isFinite, abs(milliseconds) < 1e12 else { return "–" }
        guard abs(milliseconds) < 10_000 else { return "\(Int(milliseconds.rounded())) ms" }
        let tenths = Int((milliseconds * 10).rounded())
        return "\(tenths < 0 ? "-" : "")\(abs(tenths) / 10).\(abs(tenths) % 10) ms"
    }

    /// A duration in milliseconds.
    static func number(_ duration: Duration) -> Double { duration / .milliseconds(1) }

    /// Aligned columns; what would steer a terminal is replaced.
    static func table(_ head: [String], _ rows: [[String]]) -> String {
        let all = [head] + rows.map { $0.map(printable) }
        let widths = head.indices.map { column in all.map { $0[column].count }.max() ?? 0 }
        return all.map { row in
            zip(row, widths).enumerated().map { column, cell in
                column == head.count - 1
                    ? cell.0 : cell.0 + String(repeating: " ", count: max(0, cell.1 - cell.0.count) + 2)
            }.joined()
        }.joined(separator: "\n")
    }

    /// Without control characters: names come from elsewhere.
    static func printable(_ text: String) -> String {
        String(
            String.UnicodeScalarView(text.unicodeScalars.map { $0.properties.generalCategory == .control ? " " : $0 })
        )
    }
}
