/// One JSON object (RFC 8259) on one line, its fields in the order of adding. By hand, because a JSON library would be Foundation,
/// and with it most of the start-up time.
struct JSONLine {
    private var fields = ""

    /// - Parameter type: the first field, which says what the others are.
    init(_ type: String) { add("type", type) }

    /// The object.
    var text: String { "{\(fields)}" }

    /// A text; `null` for none.
    mutating func add(_ name: String, _ value: String?) { add(name, json: value.map(Self.quoted) ?? "null") }

    /// A whole number; `null` for none.
    mutating func add(_ name: String, _ value: (some BinaryInteger)?) {
        add(name, json: value.map { "\($0)" } ?? "null")
    }

    /// Any value that is JSON already.
    mutating func add(_ name: String, json: String) {
        if !fields.isEmpty { fields += "," }
        fields += "\"\(name)\":\(json)"
    }

    /// A string of JSON. Control characters, and what ends a line in Unicode, are escaped even where JSON does not ask for it, so that
    /// no terminal obeys them.
    static func quoted(_ text: String) -> String {
        var result = "\""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"": result += "\\\""
            case "\\": result += "\\\\"
            case "\n": result += "\\n"
            case "\r": result += "\\r"
            case "\t": result += "\\t"
            default:
                if scalar.isUnprintable { result += scalar.escape } else { result.unicodeScalars.append(scalar) }
            }
        }
        return result + "\""
    }
}

extension Unicode.Scalar {
    /// Whether it moves the cursor, starts a terminal's command, or turns the direction of writing. All are of 16 bits.
    fileprivate var isUnprintable: Bool {
        switch self {
        case "\0"..."\u{1F}", "\u{7F}"..."\u{9F}", "\u{61C}", "\u{200E}", "\u{200F}", "\u{2028}"..."\u{202E}",
            "\u{2066}"..."\u{2069}", "\u{FEFF}":
            true
        default: false
        }
    }

    /// Four hexadecimal digits behind `\u`.
    fileprivate var escape: String {
        let digits = String(value, radix: 16)
        return "\\u" + String(repeating: "0", count: max(0, 4 - digits.count)) + digits
    }
}

extension String {
    /// For people: as it is, but for control characters and the backslash, which are escaped as in JSON. Names come from other
    /// processes.
    var visible: String {
        let needsEscape = unicodeScalars.contains { $0 == "\\" || $0.isUnprintable }
        guard needsEscape else { return self }
        return unicodeScalars.reduce(into: "") { result, scalar in
            if scalar == "\\" {
                result += "\\\\"
            } else if scalar.isUnprintable {
                result += scalar.escape
            } else {
                result.unicodeScalars.append(scalar)
            }
        }
    }
}
