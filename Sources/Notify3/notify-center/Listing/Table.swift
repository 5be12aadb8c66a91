import Glibc

/// Columns with headings, two blanks apart.
struct Table {
    enum Alignment {
        case left
        case right
    }

    struct Column {
        let heading: String
        let alignment: Alignment

        init(_ heading: String, _ alignment: Alignment = .left) {
            self.heading = heading
            self.alignment = alignment
        }
    }

    private let columns: [Column]
    private var rows: [[String]] = []

    init(_ columns: [Column]) { self.columns = columns }

    /// - Parameter cells: one for each column.
    mutating func add(_ cells: [String]) { rows.append(cells) }

    /// Whether standard output is a terminal, and the environment does not turn colour off.
    static var isColourful: Bool {
        guard isatty(STDOUT_FILENO) == 1 else { return false }
        func variable(_ name: String) -> String { getenv(name).map { String(cString: $0) } ?? "" }
        return variable("NO_COLOR").isEmpty && variable("TERM") != "dumb"
    }

    /// Returns all lines, the headings first. On a colourful terminal the headings are bold.
    func text(isColourful: Bool) -> String {
        let headings = columns.map(\.heading)
        let widths = columns.indices.map { column in
            ([headings] + rows).map { $0[column].count }.max() ?? 0
        }
        let lines = ([headings] + rows).map { line($0, widths) }
        let first = lines.first.map { isColourful ? "\u{1B}[1m\($0)\u{1B}[0m" : $0 } ?? ""
        return ([first] + lines.dropFirst()).joined(separator: "\n") + "\n"
    }

    private func line(_ cells: [String], _ widths: [Int]) -> String {
        let padded = cells.indices.map { column in
            let blanks = String(repeating: " ", count: widths[column] - cells[column].count)
            switch columns[column].alignment {
            case .right: return blanks + cells[column]
            // The last column needs no padding.
            case .left: return column == cells.count - 1 ? cells[column] : cells[column] + blanks
            }
        }
        return padded.joined(separator: "  ")
    }
}
