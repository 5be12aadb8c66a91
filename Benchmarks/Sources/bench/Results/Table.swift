/// The rows as aligned text.
struct Table {
    let rows: [Row]
    /// Whether verdicts carry terminal colours.
    let colour: Bool

    private static let header = ["", "measured", "baseline", "ratio", "target", ""]

    var text: String {
        let cells = [Self.header] + rows.map(cells)
        let widths = (0..<Self.header.count).map { column in
            // The last cell of a line runs to its end: a reason in the second column must not widen that.
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
                target?.text(hundredths) ?? "–", verdict(of: row),
            ]
        case .measured(let figure, let target):
            return [row.title, figure.text, "–", "–", target?.text(figure.unit.text) ?? "–", verdict(of: row)]
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
