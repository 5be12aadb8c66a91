import Foundation
import Glibc

/// Writes a line to standard output, past any buffer: whoever reads along has it at once.
func emit(_ line: String) throws(CommandFailure) {
    let bytes = Array("\(line)\n".utf8)
    var written = 0
    while written < bytes.count {
        let count = bytes[written...].withUnsafeBytes { write(STDOUT_FILENO, $0.baseAddress, $0.count) }
        if count >= 0 {
            written += count
        } else if errno != EINTR {
            throw CommandFailure(
                status: EX_IOERR,
                description: "could not write the output: \(String(cString: strerror(errno)))"
            )
        }
    }
}

/// What stands between commands and a terminal: colours, and texts of others that must not move its cursor.
enum Terminal {
    enum Colour: Int {
        case red = 31
        case green = 32
        case yellow = 33
    }

    /// Whether standard output shows colours.
    static let isColoured: Bool = {
        let environment = ProcessInfo.processInfo.environment
        return isatty(STDOUT_FILENO) != 0 && (environment["NO_COLOR"] ?? "").isEmpty && environment["TERM"] != "dumb"
    }()

    static func bold(_ text: String) -> String { isColoured ? "\u{1B}[1m\(text)\u{1B}[0m" : text }

    static func coloured(_ text: String, _ colour: Colour?) -> String {
        guard isColoured, let colour else { return text }
        return "\u{1B}[\(colour.rawValue)m\(text)\u{1B}[0m"
    }

    /// The text without anything that a terminal would act on.
    static func printable(_ text: String) -> String {
        text.unicodeScalars.map { scalar in
            switch scalar.properties.generalCategory {
            case .control, .format, .lineSeparator, .paragraphSeparator, .surrogate:
                "\\u{\(String(scalar.value, radix: 16))}"
            default: String(scalar)
            }
        }.joined()
    }
}

/// Rows below a headline, in columns as wide as their widest cell.
struct Table {
    var head: [String]
    var rows: [[String]] = []
    /// The colour of a row.
    var colours: [Terminal.Colour?] = []

    init(_ head: String...) { self.head = head }

    mutating func add(_ row: [String], _ colour: Terminal.Colour? = nil) {
        rows.append(row.map(Terminal.printable))
        colours.append(colour)
    }

    var lines: [String] {
        let widths = head.indices.map { column in ([head] + rows).map { $0[column].count }.max() ?? 0 }
        let line: ([String]) -> String = { row in
            let cells = zip(row, widths).map { $0 + String(repeating: " ", count: $1 - $0.count) }
            let text = cells.joined(separator: "  ")
            return String(text[..<(text.lastIndex { $0 != " " }.map(text.index(after:)) ?? text.startIndex)])
        }
        return [Terminal.bold(line(head))] + zip(rows, colours).map { Terminal.coloured(line($0), $1) }
    }
}

/// How commands write times and JSON.
enum Form {
    /// For people: local time, to the second.
    static func time(_ date: Date) -> String {
        date.formatted(
            Date.ISO8601FormatStyle(timeZone: .current).year().month().day()
                .dateTimeSeparator(.space).time(includingFractionalSeconds: false)
        )
    }

    /// For people: seconds since the end of a session.
    static func after(_ seconds: Double?) -> String {
        seconds.map { "+" + String(format: "%.2f", $0) + " s" } ?? "-"
    }

    /// For programs: UTC, to the millisecond.
    static func timestamp(_ date: Date) -> String {
        date.formatted(Date.ISO8601FormatStyle(includingFractionalSeconds: true))
    }

    static func json(_ value: some Encodable, pretty: Bool = true) throws -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        if pretty { encoder.outputFormatting.insert(.prettyPrinted) }
        encoder.dateEncodingStrategy = .custom { date, encoder in
            var container = encoder.singleValueContainer()
            try container.encode(timestamp(date))
        }
        return String(decoding: try encoder.encode(value), as: UTF8.self)
    }
}
