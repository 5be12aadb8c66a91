public import Basics
public import NotifyCenter

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
