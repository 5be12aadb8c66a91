package import Foundation
public import NotifyCenter

extension PropertyListValue {
    /// The property list that a value of Foundation's, or of Swift's, stands for.
    ///
    /// | taken | becomes |
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
    /// An optional stands for what it holds. The value is copied through and through (CF-P12).
    ///
    /// - Throws: ``PropertyListError`` for anything else, `NSNull` and a `nil` within `Any` included; for integers that
    ///   `UInt64` does not hold; for keys that are equal as `String`; and for a value that is nested more than 64 deep or that
    ///   contains itself.
    public init(foundationValue value: Any) throws(PropertyListError) {
        self = try FoundationReader(root: "value").value(value, depth: 0)
    }

    /// The value in Swift's own types: `String`, `Int` (`UInt64` where `Int` does not hold it), `Double`, `Bool`, `Date`, `Data`,
    /// `[Any]`, `[String: Any]`. Cast to `NSDictionary` and the like, it has real booleans in it, which are no numbers.
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
    /// The property list that a dictionary of Foundation's stands for; see ``PropertyListValue/init(foundationValue:)`` for what
    /// becomes of each type.
    ///
    /// - Throws: ``PropertyListError``, with a path that begins with `userInfo`.
    public init(propertyList dictionary: [AnyHashable: Any]) throws(PropertyListError) {
        self = try FoundationReader(root: "userInfo").dictionary(dictionary, depth: 0)
    }

    /// The same of a dictionary that is an object, which may contain itself. With a label of its own, or literals would become such.
    package init(propertyListObject dictionary: NSDictionary) throws(PropertyListError) {
        self = try FoundationReader(root: "userInfo").dictionary(dictionary, depth: 0)
    }

    /// The dictionary in Swift's own types; see ``PropertyListValue/foundationValue``.
    public var foundationValue: [String: Any] { mapValues(\.foundationValue) }
}
