import Basics
import NotifyCenter

/// For `--userinfo`. Whole numbers become integers if 64 bits hold them.
extension PropertyListValue: JSONParsable {
    static func json(object members: [String: PropertyListValue]) -> PropertyListValue { .dictionary(members) }
    static func json(array elements: [PropertyListValue]) -> PropertyListValue { .array(elements) }
    static func json(string text: String) -> PropertyListValue { .string(text) }
    static func json(boolean value: Bool) -> PropertyListValue { .bool(value) }
    /// A property list has no null.
    static var jsonNull: PropertyListValue? { nil }

    static func json(number text: String) -> PropertyListValue? {
        if let number = Int64(text) { return .integer(number) }
        if let number = UInt64(text) { return .unsigned(number) }
        guard let number = Double(text), number.isFinite else { return nil }
        return .double(number)
    }
}
