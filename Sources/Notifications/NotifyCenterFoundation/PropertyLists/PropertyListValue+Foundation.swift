public import Foundation
public import NotifyCenter

extension PropertyListValue {
    /// Converts a Swift value or a Foundation object to a property list.
    ///
    /// | type | result |
    /// |---|---|
    /// | `String`, `Substring`, `NSString` | `string` |
    /// | every integer type of Swift, `NSNumber` of an integer | `integer`, or `unsigned` beyond `Int64.max` |
    /// | `Double`, `Float`, `CGFloat`, `NSNumber` of such | `double`, also for `1.0`, NaN and the infinities |
    /// | `Bool`, `NSNumber(value: true)` | `bool`; `NSNumber(value: 1)` is an `integer` |
    /// | `Date`, `NSDate` | `date`, to the last bit |
    /// | `Data`, `NSData` | `data`; a `[UInt8]` is an array of integers, as it is on macOS |
    /// | arrays, `NSArray` | `array` |
    /// | dictionaries and `NSDictionary` with such text as keys | `dictionary` |
    ///
    /// An optional is converted to the value in it. The value is copied with all of its contents (CF-P12).
    ///
    /// - Throws: ``PropertyListError`` for any other type, including `NSNull` and a `nil` within `Any`; for integers
    ///   below `Int64.min` and above `UInt64.max`; for dates that are NaN or infinite; for keys that are equal as
    ///   `String`; for a text with an unpaired surrogate, which is not Unicode; and for a value that is nested more
    ///   than 64 deep or that contains itself.
    public init(foundationValue value: Any) throws(PropertyListError) {
        self = try PropertyListReader(root: "value", maximumDepth: 64).value(value)
    }

    /// The value in Swift's own types: `String`, `Int` (`UInt64` if `Int` cannot hold it), `Double`, `Bool`, `Date`,
    /// `Data`, `[Any]`, `[String: Any]`. A cast to `NSDictionary` or `NSArray` keeps truth values distinct from
    /// numbers.
    public var foundationValue: Any {
        switch self {
        case .string(let text): text
        case .integer(let number): Int(exactly: number).map { $0 as Any } ?? number
        case .unsigned(let number): Int(exactly: number).map { $0 as Any } ?? number
        case .double(let number): number
        case .bool(let flag): flag
        case .date(let date): Date(date)
        case .data(let bytes): Data(bytes)
        case .array(let elements): elements.map(\.foundationValue)
        case .dictionary(let dictionary): dictionary.foundationValue
        }
    }
}

extension Dictionary where Key == String, Value == PropertyListValue {
    /// Converts a userInfo to a property list; see ``PropertyListValue/init(foundationValue:)`` for the conversion of
    /// each type.
    ///
    /// - Throws: ``PropertyListError``, with a path that begins with `userInfo`, in the same cases, and for a userInfo
    ///   that is nested more than 20 arrays and dictionaries deep (itself included), which no message of the bus can
    ///   hold.
    public init(propertyList dictionary: [AnyHashable: Any]) throws(PropertyListError) {
        self = try PropertyListReader(root: "userInfo").dictionary(dictionary)
    }

    /// The dictionary in Swift's own types; see ``PropertyListValue/foundationValue``.
    public var foundationValue: [String: Any] { mapValues(\.foundationValue) }
}

// MARK: Dates

extension PropertyListDate {
    /// Converts a `Date` without loss of precision.
    public init(_ date: Date) { self.init(secondsSinceReferenceDate: date.timeIntervalSinceReferenceDate) }
}

extension Date {
    /// Converts a property list's date without loss of precision.
    public init(_ date: PropertyListDate) { self.init(timeIntervalSinceReferenceDate: date.secondsSinceReferenceDate) }
}
