import Glibc
import NotifyCenter
import NotifydProtocol

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
                if scalar.isPrintable { result.unicodeScalars.append(scalar) } else { result += scalar.escape }
            }
        }
        return result + "\""
    }
}

extension Unicode.Scalar {
    /// As JSON escapes it: four hexadecimal digits behind `\u`, for each half of what UTF-16 has two halves of.
    fileprivate var escape: String {
        UTF16.encode(self).map(Array.init)?.map { unit in
            let digits = String(unit, radix: 16)
            return "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
        }
        .joined() ?? ""
    }
}

extension String {
    /// For people: as it is, but for control characters and the backslash, which are escaped as in JSON. Names come from other
    /// processes.
    var visible: String {
        let needsEscape = unicodeScalars.contains { $0 == "\\" || !$0.isPrintable }
        guard needsEscape else { return self }
        return unicodeScalars.reduce(into: "") { result, scalar in
            if scalar == "\\" {
                result += "\\\\"
            } else if !scalar.isPrintable {
                result += scalar.escape
            } else {
                result.unicodeScalars.append(scalar)
            }
        }
    }
}

extension PropertyListValue {
    /// As JSON on one line, dictionaries in the order of their keys. What JSON has no type for is shown as people read it: data in
    /// base64, dates as of ISO 8601 in UTC, and `null` for a number that is none.
    var json: String {
        switch self {
        case .string(let text): JSONLine.quoted(text)
        case .integer(let number): "\(number)"
        case .unsigned(let number): "\(number)"
        case .double(let number): number.isFinite ? "\(number)" : "null"
        case .bool(let flag): flag ? "true" : "false"
        case .date(let date): date.json
        case .data(let bytes): "\"\(Self.base64(bytes))\""
        case .array(let elements): "[\(elements.map(\.json).joined(separator: ","))]"
        case .dictionary(let members): members.json
        }
    }

    /// RFC 4648, section 4.
    private static func base64(_ bytes: [UInt8]) -> String {
        let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
        var result: [UInt8] = []
        for start in stride(from: 0, to: bytes.count, by: 3) {
            let group = bytes[start..<min(start + 3, bytes.count)]
            let bits = group.reduce(0) { $0 << 8 | Int($1) } << (8 * (3 - group.count))
            for place in 0..<4 {
                result.append(place <= group.count ? alphabet[bits >> (18 - 6 * place) & 63] : UInt8(ascii: "="))
            }
        }
        return String(decoding: result, as: UTF8.self)
    }
}

extension UserInfo {
    /// As ``PropertyListValue/json``.
    var json: String {
        let members = sorted { $0.key < $1.key }.map { "\(JSONLine.quoted($0.key)):\($0.value.json)" }
        return "{\(members.joined(separator: ","))}"
    }
}

extension PropertyListDate {
    /// `"2001-01-01T00:00:00.000Z"`; the count of seconds where the calendar does not reach.
    fileprivate var json: String {
        let since1970 = (secondsSinceReferenceDate + 978_307_200) * 1000
        guard since1970.isFinite else { return "null" }
        // Years of four digits.
        guard (-62_135_596_800_000..<253_402_300_800_000).contains(since1970) else {
            return "\(secondsSinceReferenceDate)"
        }
        let milliseconds = Int(since1970.rounded(.down))
        var seconds = time_t((Double(milliseconds) / 1000).rounded(.down))
        let fraction = milliseconds - seconds * 1000
        var parts = tm()
        gmtime_r(&seconds, &parts)
        func digits(_ number: some BinaryInteger, _ count: Int) -> String {
            let text = "\(number)"
            return String(repeating: "0", count: max(0, count - text.count)) + text
        }
        let day = "\(digits(parts.tm_year + 1900, 4))-\(digits(parts.tm_mon + 1, 2))-\(digits(parts.tm_mday, 2))"
        let time = "\(digits(parts.tm_hour, 2)):\(digits(parts.tm_min, 2)):\(digits(parts.tm_sec, 2))"
        return "\"\(day)T\(time).\(digits(fraction, 3))Z\""
    }
}
