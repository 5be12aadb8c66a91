import CoreFoundation
import Foundation
import NotifyCenter
import NotifyCenterFoundation
import Testing

@Suite("Property lists and Foundation's values", .timeLimit(.minutes(10)))
struct PropertyListTests {
    static let values: [(any Sendable, PropertyListValue)] = [
        ("text", "text"), ("", ""), ("a\0b", "a\0b"), ("héllo 🙂"[...], "héllo 🙂"),
        (1, 1), (Int8.min, -128), (UInt8.max, 255), (Int64.min, .integer(.min)), (UInt64.max, .unsigned(.max)),
        (UInt(3), 3), (Int128(7), 7),
        (1.0, .double(1)), (Float(0.5), .double(0.5)), (CGFloat(2), .double(2)), (Double.infinity, .double(.infinity)),
        (true, true), (false, false),
        (Date(timeIntervalSinceReferenceDate: 0.1), .date(PropertyListDate(secondsSinceReferenceDate: 0.1))),
        (Data(), .data([])), (Data([0, 255]), .data([0, 255])), ([UInt8(1), 2], [1, 2]),
        ([Int](), []), ([1, 2], [1, 2]), ([String: Int](), [:]), (["a": ["b": [true]]], ["a": ["b": [true]]]),
        (Int?.some(4), 4), ([Int?.some(4)], [4]),
    ]

    static func objects() -> [(Any, PropertyListValue)] {
        [
            (NSString("text"), "text"), (NSMutableString("text"), "text"),
            (NSNumber(value: true), true), (NSNumber(value: false), false),
            (NSNumber(value: Int8(1)), 1), (NSNumber(value: 0), 0), (NSNumber(value: UInt64.max), .unsigned(.max)),
            (NSNumber(value: Int64.min), .integer(.min)), (NSNumber(value: UInt64(5)), 5),
            (NSNumber(value: 1.0), .double(1)), (NSNumber(value: Float(0.5)), .double(0.5)),
            (NSDecimalNumber(string: "1.5"), .double(1.5)),
            (NSDate(timeIntervalSinceReferenceDate: 0.1), .date(PropertyListDate(secondsSinceReferenceDate: 0.1))),
            (NSData(), .data([])), (NSMutableData(), .data([])), (NSData(data: Data([7])), .data([7])),
            (NSArray(), []), (NSMutableArray(array: [1, true, 1.0]), [1, true, 1.0]),
            (NSDictionary(), [:]), (["a": ["b": [true, 1]]] as NSDictionary, ["a": ["b": [true, 1]]]),
            (NSMutableDictionary(dictionary: ["a": NSNumber(value: true)]), ["a": true]),
            (Optional(NSString("a")) as Any, "a"),
        ]
    }

    // CF-U1, CF-U7
    @Test("each Swift type and Foundation class becomes its property-list type and returns")
    func types() throws {
        for (value, expected) in Self.values.map({ ($0.0 as Any, $0.1) }) + Self.objects() {
            let userInfo = try UserInfo(propertyList: ["key": value])
            #expect(try PropertyListValue(foundationValue: value) == expected, "\(type(of: value)) \(value)")
            #expect(userInfo == ["key": expected], "\(type(of: value)) \(value)")
            #expect(try UserInfo(propertyList: userInfo.foundationValue) == userInfo, "\(type(of: value)) \(value)")
        }
        for (value, expected) in Self.objects() {
            #expect(try PropertyListValue(foundationValue: [value] as NSArray) == [expected], "in an NSArray: \(value)")
        }
    }

    private final class OwnArray: NSArray {
        override var count: Int { 2 }
        override func object(at index: Int) -> Any { "element \(index)" }
    }

    // CF-U1, CF-U2, CF-U7
    @Test("CoreFoundation's collections are read, and its invalid scalars refused")
    func coreFoundationCollections() throws {
        let array = try #require(CFArrayCreateMutable(nil, 0, nil))
        let text = NSString("in CoreFoundation's array")
        CFArrayAppendValue(array, Unmanaged.passUnretained(text).toOpaque())
        let read = try withExtendedLifetime(text) {
            try PropertyListValue(foundationValue: unsafeBitCast(array, to: NSArray.self))
        }
        #expect(read == ["in CoreFoundation's array"])
        CFArrayAppendValue(array, nil)
        #expect(throws: PropertyListError.self) {
            try withExtendedLifetime(text) {
                _ = try PropertyListValue(foundationValue: unsafeBitCast(array, to: NSArray.self))
            }
        }
        #expect(try PropertyListValue(foundationValue: OwnArray()) == ["element 0", "element 1"])
        var lone: UniChar = 0xD800
        var (wide, largest): ((high: Int64, low: UInt64), (high: Int64, low: UInt64)) = ((1, 0), (0, .max))
        // The number of the 128-bit type.
        let type = try #require(CFNumberType(rawValue: 17))
        func foundation(_ object: AnyObject) -> AnyObject { object }
        for (value, found) in [
            (foundation(CFNumberCreate(nil, type, &wide)), "an integer beyond"),
            (foundation(CFStringCreateWithCharacters(nil, &lone, 1)), "an unpaired surrogate"),
        ] {
            let error = try #require(throws: PropertyListError.self) { try PropertyListValue(foundationValue: value) }
            #expect(error.found.contains(found))
        }
        let number = foundation(CFNumberCreate(nil, type, &largest))
        #expect(try PropertyListValue(foundationValue: number) == .unsigned(.max))
    }

    // CF-U8: Foundation ends a process that prints such a date.
    @Test("NaN is a valid double, and a date that is NaN or infinite is refused")
    func noDate() throws {
        for value in [Double.nan as Any, NSNumber(value: Double.nan)] {
            #expect(try PropertyListValue(foundationValue: value).doubleValue?.isNaN == true)
        }
        for seconds in [Double.nan, .infinity, -.infinity] {
            let date = Date(timeIntervalSinceReferenceDate: seconds)
            for value in [date as Any, NSDate(timeIntervalSinceReferenceDate: seconds), [date], ["key": date]] {
                let error = #expect(throws: PropertyListError.self) { try PropertyListValue(foundationValue: value) }
                #expect(error?.found == "a date that is NaN or infinite", "\(seconds)")
            }
        }
    }

    // CF-U7
    @Test("values come back as Swift types, and as Foundation's after a cast")
    func back() throws {
        let date = Date(timeIntervalSinceReferenceDate: 1e9 + 1 / 1024)
        let userInfo: UserInfo = [
            "text": "x", "number": 1, "large": .unsigned(.max), "fitting": .unsigned(3), "double": 1.0, "flag": true,
            "date": .date(PropertyListDate(date)), "data": .data([1]), "array": [1, "x"], "nested": ["flag": false],
        ]
        let value = userInfo.foundationValue
        #expect(
            value.mapValues { String(describing: type(of: $0)) } == [
                "text": "String", "number": "Int", "large": "UInt64", "fitting": "Int", "double": "Double",
                "flag": "Bool", "date": "Date", "data": "Data", "array": "Array<Any>",
                "nested": "Dictionary<String, Any>",
            ]
        )
        #expect(value["date"] as? Date == date && value["large"] as? UInt64 == .max)
        let object = value as NSDictionary
        #expect(CFGetTypeID(try #require(object["flag"] as? NSNumber)) == CFBooleanGetTypeID())
        #expect(CFGetTypeID(try #require(object["number"] as? NSNumber)) != CFBooleanGetTypeID())
        #expect(try UserInfo(propertyList: value) == userInfo)
        #expect(try PropertyListValue(foundationValue: object) == .dictionary(userInfo))
    }

    // CF-U2
    @Test("the error for a refused value names place, type, allowed types and remedy")
    func refusals() throws {
        let cases: [([AnyHashable: Any], String)] = [
            (["a": [1, ["b": NSNull()]]], "userInfo[\"a\"][1][\"b\"]: of type NSNull."),
            (["a": UUID()], "userInfo[\"a\"]: of type UUID."),
            (["a": NSArray(array: [1, NSUUID()])], "userInfo[\"a\"][1]: of type NSUUID."),
            (["a": Int?.none as Any], "userInfo[\"a\"]: nil."),
            (["a": Int128.max], "userInfo[\"a\"]: an integer beyond"),
            (["a": [3: 4]], "userInfo[\"a\"]: a key of type Int."),
            (["a": NSDictionary(dictionary: [3: 4])], "userInfo[\"a\"]: a key of type NSNumber."),
            ([3: 4], "userInfo: a key of type Int."),
            (["a": { () -> Void in }], "userInfo[\"a\"]: of type () -> ()."),
        ]
        for (dictionary, expected) in cases {
            let error = try #require(throws: PropertyListError.self) { try UserInfo(propertyList: dictionary) }
            #expect(error.description.hasPrefix(expected), "\(error)")
            #expect(error.description.contains("A property list holds String"))
        }
    }

    @Test("a value that contains itself, or is nested too deep, is an error, not a crash")
    func depth() throws {
        let array = NSMutableArray()
        array.add(array)
        let dictionary = NSMutableDictionary()
        dictionary["me"] = dictionary
        dictionary["array"] = array
        for cyclic in [array as Any, dictionary] {
            #expect(throws: PropertyListError.self) { try PropertyListValue(foundationValue: cyclic) }
            let error = try #require(throws: PropertyListError.self) { try UserInfo(propertyList: ["a": cyclic]) }
            #expect(error.path.hasSuffix("…"))
        }
        array.removeAllObjects()
        dictionary.removeAllObjects()
        var deep: Any = NSArray()
        for _ in 0..<1_000 { deep = NSMutableArray(object: deep) }
        #expect(throws: PropertyListError.self) { try PropertyListValue(foundationValue: deep) }
        var bearable: Any = [1]
        for _ in 0..<60 { bearable = [bearable] }
        #expect(throws: Never.self) { try PropertyListValue(foundationValue: bearable) }
    }
}
