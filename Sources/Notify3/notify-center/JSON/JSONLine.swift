import CommandSupport
import FoundationEssentials
import NotifyCenter
import NotifydProtocol

/// One JSON object (RFC 8259) on one line, its fields in the order of adding, which Foundation's encoder does not keep.
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
        case .data(let bytes): "\"\(Data(bytes).base64EncodedString())\""
        case .array(let elements): "[\(elements.map(\.json).joined(separator: ","))]"
        case .dictionary(let members): members.json
        }
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
        guard secondsSinceReferenceDate.isFinite else { return "null" }
        let date = Date(timeIntervalSinceReferenceDate: secondsSinceReferenceDate)
        // Years of four digits.
        guard (Self.year1..<Self.year10000).contains(date) else { return "\(secondsSinceReferenceDate)" }
        return "\"\(date.formatted(Date.ISO8601FormatStyle(includingFractionalSeconds: true)))\""
    }

    private static let year1 = Date(timeIntervalSince1970: -62_135_596_800)
    private static let year10000 = Date(timeIntervalSince1970: 253_402_300_800)
}
