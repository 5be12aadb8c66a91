public import Basics
import CommandSupport
import FoundationEssentials
public import NotifyCenter

/// A JSON object (RFC 8259) on one line. Its fields have the order of adding, which Foundation's encoder does not keep.
struct JSONLine {
    private var fields = ""

    /// - Parameter type: The value of the first field, `type`, which determines the other fields.
    init(_ type: String) { add("type", type) }

    var text: String { "{\(fields)}" }

    /// Adds a text; `null` for `nil`.
    mutating func add(_ name: String, _ value: String?) { add(name, json: value.map(Self.quoted) ?? "null") }

    /// Adds a whole number; `null` for `nil`.
    mutating func add(_ name: String, _ value: (some BinaryInteger)?) {
        add(name, json: value.map { "\($0)" } ?? "null")
    }

    /// Adds a value that is JSON already.
    mutating func add(_ name: String, json: String) {
        if !fields.isEmpty { fields += "," }
        fields += "\"\(name)\":\(json)"
    }

    /// Returns a JSON string. Escapes control characters and Unicode's line ends even where JSON does not require it,
    /// so that they cannot control a terminal.
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
    /// The value as JSON on one line, dictionaries in the order of their keys. Types that JSON lacks have a form for
    /// people: data in base64, and dates as of ISO 8601 in UTC. A number that is not finite becomes `null`.
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
    /// `"2001-01-01T00:00:00.000Z"`; the number of seconds if the year has not four digits.
    fileprivate var json: String {
        guard secondsSinceReferenceDate.isFinite else { return "null" }
        let date = Date(timeIntervalSinceReferenceDate: secondsSinceReferenceDate)
        guard (Self.year1..<Self.year10000).contains(date) else { return "\(secondsSinceReferenceDate)" }
        return "\"\(date.formatted(Date.ISO8601FormatStyle(includingFractionalSeconds: true)))\""
    }

    private static let year1 = Date(timeIntervalSince1970: -62_135_596_800)
    private static let year10000 = Date(timeIntervalSince1970: 253_402_300_800)
}

/// For `--userinfo`. Whole numbers become integers if 64 bits hold them.
extension PropertyListValue: JSONParsable {
    public static func json(object members: [String: PropertyListValue]) -> PropertyListValue { .dictionary(members) }
    public static func json(array elements: [PropertyListValue]) -> PropertyListValue { .array(elements) }
    public static func json(string text: String) -> PropertyListValue { .string(text) }
    public static func json(boolean value: Bool) -> PropertyListValue { .bool(value) }
    /// A property list has no null.
    public static var jsonNull: PropertyListValue? { nil }

    public static func json(number text: String) -> PropertyListValue? {
        if let number = Int64(text) { return .integer(number) }
        if let number = UInt64(text) { return .unsigned(number) }
        guard let number = Double(text), number.isFinite else { return nil }
        return .double(number)
    }
}
