struct Table {
    let rows: [Row]
    let colour: Bool

    private static let header = ["", "measured", "baseline", "ratio", "target", ""]

    var text: String {
        let cells = [Self.header] + rows.map(cells)
        let widths = (0..<Self.header.count).map { column in
            // The last cell of a line does not count: a long reason in the second column must not widen that column.
            cells.filter { column < $0.count - 1 }.map { $0[column].count }.max() ?? 0
        }
        return cells.map { line(of: $0, widths: widths) }.joined(separator: "\n") + "\n"
    }

    private func line(of cells: [String], widths: [Int]) -> String {
        var line = ""
        for (column, cell) in cells.enumerated() {
            if column > 0 { line += "  " }
            let isLast = column == cells.count - 1
            line += isLast ? coloured(cell) : cell + String(repeating: " ", count: widths[column] - cell.count)
        }
        while line.last == " " { line.removeLast() }
        return line
    }

    private func cells(of row: Row) -> [String] {
        switch row.outcome {
        case .compared(let comparison, let target):
            let ratios = comparison.ratios
            let ratio = "\(hundredths(ratios.median)) (\(hundredths(ratios.minimum))–\(hundredths(ratios.maximum)))"
            return [
                row.title, comparison.measured.text, comparison.baseline.text, ratio,
                target?.text(ratio: hundredths, figure: comparison.measured.unit.text) ?? "–", verdict(of: row),
            ]
        case .measured(let figure, let target):
            let limit = target?.text(ratio: figure.unit.text, figure: figure.unit.text)
            return [row.title, figure.text, "–", "–", limit ?? "–", verdict(of: row)]
        case .unavailable(let reason):
            return [row.title, reason]
        case .failed(let reason):
            return [row.title, "failed: \(reason)"]
        }
    }

    private func verdict(of row: Row) -> String {
        switch row.verdict {
        case .met, .missed: row.verdict.rawValue
        case .informative, .unavailable, .failed: ""
        }
    }

    private func coloured(_ cell: String) -> String {
        guard colour else { return cell }
        return switch cell {
        case "met": "\u{1B}[32mmet\u{1B}[0m"
        case "missed": "\u{1B}[31mmissed\u{1B}[0m"
        case _ where cell.hasPrefix("failed: "): "\u{1B}[31m\(cell)\u{1B}[0m"
        default: cell
        }
    }
}

private func hundredths(_ value: Double) -> String {
    fixed(value, digits: 2)
}

extension Figure {
    fileprivate var text: String { "\(contender) \(unit.text(samples))" }
}

/// The unit of a figure, and its format for people.
enum Unit: String, Codable {
    case nanoseconds
    case perSecond
    case bytes
    case count

    /// Three significant digits with the prefix that fits the value, such as `62.1 µs`.
    func text(_ value: Double) -> String {
        let step = scale(of: value)
        return digits(value / step.size) + (step.symbol.isEmpty ? "" : " \(step.symbol)")
    }

    /// The median with its extremes, all in the prefix that fits the median: `62.1 µs (60.2–70.4)`.
    func text(_ samples: Samples) -> String {
        let step = scale(of: samples.median)
        let minimum = digits(samples.minimum / step.size)
        let maximum = digits(samples.maximum / step.size)
        return "\(text(samples.median)) (\(minimum)–\(maximum))"
    }

    private func digits(_ value: Double) -> String {
        self == .count ? fixed(value, digits: 0) : threeDigits(value)
    }

    private func scale(of value: Double) -> (size: Double, symbol: String) {
        var chosen = steps[0]
        for step in steps where value.magnitude >= step.size { chosen = step }
        return chosen
    }

    private var steps: [(size: Double, symbol: String)] {
        switch self {
        case .nanoseconds: [(1, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")]
        case .perSecond: [(1, "/s"), (1e3, "k/s"), (1e6, "M/s")]
        case .bytes: [(1, "B"), (1e3, "kB"), (1e6, "MB")]
        case .count: [(1, "")]
        }
    }
}

/// `value` with a fixed number of digits after the point.
func fixed(_ value: Double, digits: Int) -> String {
    var power = 1.0
    for _ in 0..<digits { power *= 10 }
    let scaled = (value.magnitude * power).rounded()
    // Beyond this the digits after the point mean nothing, and the conversion to Int would trap.
    guard scaled < 1e15 else { return "\(value)" }
    let sign = value < 0 && scaled > 0 ? "-" : ""
    let whole = Int(scaled / power)
    guard digits > 0 else { return "\(sign)\(whole)" }
    let fraction = String(Int(scaled) - whole * Int(power))
    return "\(sign)\(whole)." + String(repeating: "0", count: digits - fraction.count) + fraction
}

/// `value` with about three significant digits, never in exponent form.
func threeDigits(_ value: Double) -> String {
    switch value.magnitude {
    case ..<9.995: fixed(value, digits: 2)
    case ..<99.95: fixed(value, digits: 1)
    default: fixed(value, digits: 0)
    }
}
