/// A value in the userInfo of a distributed notification. It has only property-list types (CF-U1), so that values that
/// cannot be sent do not compile (CF-U2).
public enum PropertyListValue: Sendable {
    /// Any Unicode text, including U+0000.
    case string(String)
    /// A whole number that `Int64` holds.
    case integer(Int64)
    /// A whole number up to `UInt64.max`. Equal to an `integer` of the same value, and received as an `integer` if it
    /// fits.
    case unsigned(UInt64)
    /// A floating-point number. `1.0` is not the integer `1`.
    case double(Double)
    /// A truth value. `true` is not the integer `1`.
    case bool(Bool)
    /// A moment. A date that is NaN or infinite cannot be posted.
    case date(PropertyListDate)
    /// Bytes.
    case data([UInt8])
    /// Values in order.
    case array([PropertyListValue])
    /// Values by key.
    case dictionary([String: PropertyListValue])
}

/// A moment, in seconds since 2001-01-01 00:00:00 UTC. Foundation's `Date` and CoreFoundation's `CFDate` store the same
/// number, so no bit is lost.
public struct PropertyListDate: Sendable, Hashable {
    /// Seconds since 2001-01-01 00:00:00 UTC.
    public let secondsSinceReferenceDate: Double

    /// Creates the moment that many seconds after 2001-01-01 00:00:00 UTC.
    public init(secondsSinceReferenceDate: Double) { self.secondsSinceReferenceDate = secondsSinceReferenceDate }

    /// Whether it is a moment, and not NaN or infinite.
    package var isFinite: Bool { secondsSinceReferenceDate.isFinite }
}

/// The content of a distributed notification, beside its name and object.
public typealias UserInfo = [String: PropertyListValue]

extension PropertyListValue: Hashable {
    /// Whether type and value are the same. The two integer cases count as one type.
    public static func == (left: PropertyListValue, right: PropertyListValue) -> Bool {
        switch (left, right) {
        case (.string(let left), .string(let right)): left == right
        case (.integer(let left), .integer(let right)): left == right
        case (.unsigned(let left), .unsigned(let right)): left == right
        case (.integer(let left), .unsigned(let right)), (.unsigned(let right), .integer(let left)): left == right
        case (.double(let left), .double(let right)): left == right
        case (.bool(let left), .bool(let right)): left == right
        case (.date(let left), .date(let right)): left == right
        case (.data(let left), .data(let right)): left == right
        case (.array(let left), .array(let right)): left == right
        case (.dictionary(let left), .dictionary(let right)): left == right
        default: false
        }
    }

    /// Hashes the values that `==` compares.
    public func hash(into hasher: inout Hasher) {
        switch self {
        case .string(let value): hasher.combine(value)
        // Integers of equal value and different type have the same hash only as one type.
        case .integer(let value): hasher.combine(Int128(value))
        case .unsigned(let value): hasher.combine(Int128(value))
        case .double(let value): hasher.combine(value)
        case .bool(let value): hasher.combine(value)
        case .date(let value): hasher.combine(value)
        case .data(let value): hasher.combine(value)
        case .array(let value): hasher.combine(value)
        case .dictionary(let value): hasher.combine(value)
        }
    }
}

extension PropertyListValue: ExpressibleByStringLiteral, ExpressibleByIntegerLiteral, ExpressibleByFloatLiteral,
    ExpressibleByBooleanLiteral, ExpressibleByArrayLiteral, ExpressibleByDictionaryLiteral
{
    /// Creates a text from a literal.
    public init(stringLiteral value: String) { self = .string(value) }
    /// Creates a whole number from a literal.
    public init(integerLiteral value: Int64) { self = .integer(value) }
    /// Creates a floating-point number from a literal.
    public init(floatLiteral value: Double) { self = .double(value) }
    /// Creates a truth value from a literal.
    public init(booleanLiteral value: Bool) { self = .bool(value) }
    /// Creates an array from a literal.
    public init(arrayLiteral elements: PropertyListValue...) { self = .array(elements) }
    /// Creates a dictionary from a literal. If a key is written twice, the last value counts.
    public init(dictionaryLiteral elements: (String, PropertyListValue)...) {
        self = .dictionary(Dictionary(elements) { $1 })
    }
}

// MARK: - Reading

extension PropertyListValue {
    /// The text; `nil` for any other type. The other properties work the same way.
    public var stringValue: String? { if case .string(let value) = self { value } else { nil } }

    /// The whole number, if `Int` can hold it.
    public var intValue: Int? {
        switch self {
        case .integer(let value): Int(exactly: value)
        case .unsigned(let value): Int(exactly: value)
        default: nil
        }
    }

    /// The floating-point number; `nil` for a whole number too.
    public var doubleValue: Double? { if case .double(let value) = self { value } else { nil } }

    /// The truth value.
    public var boolValue: Bool? { if case .bool(let value) = self { value } else { nil } }

    /// The moment.
    public var dateValue: PropertyListDate? { if case .date(let value) = self { value } else { nil } }

    /// The bytes.
    public var dataValue: [UInt8]? { if case .data(let value) = self { value } else { nil } }

    /// The values in order.
    public var arrayValue: [PropertyListValue]? { if case .array(let value) = self { value } else { nil } }

    /// The values by key.
    public var dictionaryValue: [String: PropertyListValue]? {
        if case .dictionary(let value) = self { value } else { nil }
    }
}
