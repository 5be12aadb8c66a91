import Basics

/// A line of a terminal's screen: texts with styles. Text is escaped, so that no name moves the cursor.
public struct ScreenLine: Sendable, Equatable {
    public enum Style: Sendable, Equatable {
        case plain, strong, dim, good, waits, bad

        /// The parameters of the terminal's sequence SGR (ECMA-48, 8.3.117).
        fileprivate var code: String? {
            switch self {
            case .plain: nil
            case .strong: "1"
            case .dim: "2"
            case .good: "32"
            case .waits: "33"
            case .bad: "31"
            }
        }
    }

    private struct Piece: Sendable, Equatable {
        var text: String
        var style: Style
    }

    private var pieces: [Piece] = []

    public init(_ text: String = "", _ style: Style = .plain) { add(text, style) }

    public mutating func add(_ text: String, _ style: Style = .plain) {
        guard !text.isEmpty else { return }
        pieces.append(Piece(text: text.printable, style: style))
    }

    mutating func pad(to column: Int) {
        let width = width
        if width < column { add(String(repeating: " ", count: column - width)) }
    }

    /// The line with every style dimmed, for content that may be out of date.
    func dimmed() -> ScreenLine {
        var line = self
        for index in line.pieces.indices { line.pieces[index].style = .dim }
        return line
    }

    var width: Int { pieces.reduce(0) { $0 + Self.columns($1.text) } }

    /// The line cut to a number of columns, with an ellipsis if something is missing.
    func clipped(to columns: Int) -> ScreenLine {
        guard width > columns else { return self }
        var line = ScreenLine()
        var left = columns - 1
        for piece in pieces {
            let fitting = Self.prefix(of: piece.text, columns: left)
            line.add(fitting, piece.style)
            left -= Self.columns(fitting)
            guard fitting == piece.text else { break }
        }
        if columns > 0 { line.add("…", .dim) }
        return line
    }

    /// The line as it is written, without blanks at the end.
    public func text(isColoured: Bool) -> String {
        var text = ""
        for piece in pieces {
            guard isColoured, let code = piece.style.code else {
                text += piece.text
                continue
            }
            text += "\u{1B}[\(code)m\(piece.text)\u{1B}[0m"
        }
        return isColoured ? text : String(text.reversed().drop { $0 == " " }.reversed())
    }

    // MARK: Texts

    /// An estimate of the text's columns; terminals differ.
    static func columns(_ text: String) -> Int { text.reduce(0) { $0 + columns($1) } }

    private static func columns(_ character: Character) -> Int {
        guard let scalar = character.unicodeScalars.first else { return 0 }
        switch scalar.properties.generalCategory {
        case .nonspacingMark, .enclosingMark: return 0
        default: break
        }
        // Wide characters by Unicode's annex 11: Hangul, CJK, full-width forms, and emoji.
        let wide: [ClosedRange<UInt32>] = [
            0x1100...0x115F, 0x2E80...0xA4CF, 0xA960...0xA97F, 0xAC00...0xD7A3, 0xF900...0xFAFF, 0xFE30...0xFE6F,
            0xFF00...0xFF60, 0xFFE0...0xFFE6, 0x20000...0x3FFFD,
        ]
        let isPicture = scalar.properties.isEmojiPresentation || character.unicodeScalars.contains("\u{FE0F}")
        return isPicture || wide.contains { $0.contains(scalar.value) } ? 2 : 1
    }

    static func prefix(of text: String, columns limit: Int) -> String {
        var left = limit
        return String(
            text.prefix { character in
                left -= columns(character)
                return left >= 0
            }
        )
    }

    /// Splits the text into lines of at most `limit` columns, at blanks if possible.
    static func wrapped(_ text: String, columns limit: Int) -> [String] {
        var lines: [String] = []
        for word in text.printable.split(separator: " ") {
            if let last = lines.last, columns(last) + 1 + columns(String(word)) <= limit {
                lines[lines.count - 1] += " \(word)"
            } else {
                lines.append(String(word))
            }
        }
        return lines
    }
}
