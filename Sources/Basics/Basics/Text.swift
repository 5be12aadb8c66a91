import Glibc

// Handles text from other processes, and its output.

extension Unicode.Scalar {
    /// Whether a terminal only displays the scalar: no end of line, cursor movement, command or change of direction.
    public var isPrintable: Bool {
        switch properties.generalCategory {
        case .control, .lineSeparator, .paragraphSeparator: false
        // The two joiners shape the adjacent letters.
        case .format: self == "\u{200C}" || self == "\u{200D}"
        default: true
        }
    }

    /// Whether this is a control, formatting, private-use or unassigned character, which could make names look alike.
    public var isInvisible: Bool {
        switch properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator, .privateUse, .surrogate, .unassigned: true
        default: false
        }
    }
}

extension String {
    /// The text on one line, with unprintable characters escaped as `\u{1b}`.
    public var printable: String {
        // The common case.
        if utf8.allSatisfy({ $0 >= 0x20 && $0 < 0x7F }) { return self }
        return unicodeScalars.reduce(into: "") { result, scalar in
            if scalar.isPrintable {
                result.unicodeScalars.append(scalar)
            } else {
                result += "\\u{\(String(scalar.value, radix: 16))}"
            }
        }
    }

    /// The first `count` Unicode scalars, with invisible ones replaced, for texts that other processes may make long.
    /// Scalars are counted, because one character may have any length.
    public func printable(_ count: Int) -> String {
        // The common case.
        if utf8.count <= count, utf8.allSatisfy({ $0 >= 0x20 && $0 < 0x7F }) { return self }
        let scalars = unicodeScalars.prefix(count).map { $0.isInvisible ? "\u{FFFD}" : $0 }
        return String(String.UnicodeScalarView(scalars)) + (unicodeScalars.count > count ? "…" : "")
    }

    /// The text, escaped for element content and quoted attributes in HTML and XML 1.0. Characters that XML 1.0 cannot
    /// express become U+FFFD. By scalars, as browsers do: a character and its combining accent are one `Character`.
    public var markup: String {
        unicodeScalars.reduce(into: "") { result, scalar in
            switch scalar {
            case "&": result += "&amp;"
            case "<": result += "&lt;"
            case ">": result += "&gt;"
            case "\"": result += "&quot;"
            case "'": result += "&#39;"
            // In an attribute, a parser would turn the literal character into a space.
            case "\n": result += "&#10;"
            case "\t": result += "&#9;"
            case "\u{20}"..."\u{7E}", "\u{A0}"..."\u{D7FF}", "\u{E000}"..."\u{FFFD}", "\u{10000}"..."\u{10FFFF}":
                result.unicodeScalars.append(scalar)
            default: result += "\u{FFFD}"
            }
        }
    }

    /// The text in quotes on one line, with unprintable characters escaped.
    public var quotedOnOneLine: String { "“\(printable)”" }

    /// An untrusted text for a message: in quotation marks, at most 64 scalars, with invisible ones replaced.
    public var quoted: String { "“" + printable(64) + "”" }
}

/// Rows of cells in aligned columns, two blanks apart, for a terminal. Unprintable characters are escaped.
public struct TextTable: Sendable {
    private var rows: [[String]]
    private let rightAligned: Set<Int>

    /// - Parameter rightAligned: The columns whose cells end at the right; the others begin at the left.
    public init(_ headings: [String], _ rows: [[String]] = [], rightAligned: Set<Int> = []) {
        self.rows = [headings]
        self.rightAligned = rightAligned
        for row in rows { add(row) }
    }

    /// - Parameter cells: One for each column.
    public mutating func add(_ cells: [String]) { rows.append(cells.map(\.printable)) }

    /// The headings, then the rows. No line ends in blanks.
    public var lines: [String] {
        let widths = rows[0].indices.map { column in rows.map { $0[column].count }.max() ?? 0 }
        return rows.map { row in
            let cells = row.indices.map { column in
                let blanks = String(repeating: " ", count: widths[column] - row[column].count)
                return rightAligned.contains(column) ? blanks + row[column] : row[column] + blanks
            }
            let line = cells.joined(separator: "  ")
            return String(line[..<(line.lastIndex { $0 != " " }.map(line.index(after:)) ?? line.startIndex)])
        }
    }
}

/// Writes all of a text.
///
/// - Parameters:
///   - waits: whether to wait for room in a non-blocking pipe or terminal.
///   - deadline: the end of the wait; `nil` to wait without limit.
/// - Returns: 0, or the error number of the write that failed; `ETIMEDOUT` at the deadline.
public func writeAll(
    _ text: String,
    to descriptor: CInt,
    waits: Bool = false,
    until deadline: ContinuousClock.Instant? = nil
) -> CInt {
    var text = text
    return text.withUTF8 { writeAll(UnsafeRawBufferPointer($0), to: descriptor, waits: waits, until: deadline) }
}

/// Writes all of the bytes. The parameters and the result are those of the function for texts.
public func writeAll(
    _ bytes: UnsafeRawBufferPointer,
    to descriptor: CInt,
    waits: Bool = false,
    until deadline: ContinuousClock.Instant? = nil
) -> CInt {
    var rest = bytes[...]
    while !rest.isEmpty {
        let written = write(descriptor, UnsafeRawBufferPointer(rebasing: rest).baseAddress, rest.count)
        if written > 0 {
            rest = rest.dropFirst(written)
        } else if errno == EAGAIN, waits {
            var room = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
            let left = deadline.map { CInt(clamping: Int64(max(.zero, $0 - .now) / .milliseconds(1))) } ?? -1
            if poll(&room, 1, left) == 0 { return ETIMEDOUT }
        } else if errno != EINTR {
            return errno
        }
    }
    return 0
}

/// The capabilities of a terminal.
public enum TerminalOutput {
    public static func isTerminal(_ descriptor: CInt) -> Bool { isatty(descriptor) != 0 }

    /// Whether output to the descriptor may have colours: it is a terminal with colours, and `NO_COLOR` is not set.
    public static func showsColour(_ descriptor: CInt) -> Bool {
        showsCursor(descriptor) && (ProcessEnvironment.value("NO_COLOR") ?? "").isEmpty
    }

    /// Whether a line on the descriptor can be rewritten.
    public static func showsCursor(_ descriptor: CInt) -> Bool {
        isTerminal(descriptor) && ProcessEnvironment.value("TERM") != "dumb"
    }
}
