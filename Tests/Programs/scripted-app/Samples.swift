import CoreFoundation
import Foundation

/// The dictionaries that commands refer to by name.
enum Samples {
    /// CFNumber's widest integer type, which holds `UInt64.max`.
    static var wideType: CFNumberType { CFNumberType(rawValue: 17) ?? .sInt64Type }

    static var number: CFNumber {
        var value = 7
        return CFNumberCreate(nil, .longType, &value)
    }

    /// A text with an unpaired surrogate.
    static var surrogate: CFString {
        var unit: UniChar = 0xD800
        return CFStringCreateWithCharacters(nil, &unit, 1)
    }

    static func userInfo(_ name: String) -> CFDictionary? {
        switch name {
        case "-": return nil
        case "empty": return dictionary([:])
        case "every-type": return dictionary(everyType)
        case "foundation": return foundation
        case "changing": return dictionary(["key": makeString("before")])
        case "set-inside": return dictionary(["a": array([number, number, CFSetCreateMutable(nil, 0, nil)])])
        case "number-key":
            let result = dictionary([:])
            CFDictionarySetValue(result, pointer(number), pointer(number))
            return result
        case "too-big":
            var value: (Int64, UInt64) = (1, 0)
            return dictionary(["n": CFNumberCreate(nil, wideType, &value)])
        case "same-keys": return dictionary([makeString("e\u{301}"), makeString("\u{E9}")].map { ($0, number) })
        case "cycle":
            let result = dictionary([:])
            CFDictionarySetValue(result, pointer(makeString("self")), pointer(result))
            return result
        case "nested-20": return nested(20)
        case "nested-21": return nested(21)
        case "null-object": return dictionary(["n": NSNull()])
        case "uuid": return dictionary(["n": NSUUID()])
        case "swift-object": return dictionary(["n": PlainObject()])
        case "surrogate-value": return dictionary(["n": surrogate])
        case "surrogate-key": return dictionary([(surrogate, number)])
        case "too-long":
            let units = [UniChar](repeating: 0x61, count: 16 * 1024 * 1024 + 1)
            return dictionary(["n": CFStringCreateWithCharacters(nil, units, units.count)])
        case "widths": return dictionary(widths)
        case "own-dictionary": return converted(ownDictionary)
        case "own-inside": return dictionary(["a": converted(NSDictionary(dictionary: ["array": OwnArray(count: 1)]))])
        case "own-cycle": return dictionary(["n": OwnArray(count: 1, isEndless: true)])
        default: return dictionary(["key": makeString(name)])
        }
    }

    static func change(_ dictionary: CFDictionary) {
        let mutable = Unmanaged<CFMutableDictionary>.fromOpaque(pointer(dictionary)).takeUnretainedValue()
        CFDictionarySetValue(mutable, pointer(makeString("key")), pointer(makeString("after")))
    }

    private static var everyType: [String: AnyObject] {
        var big: (Int64, UInt64) = (0, UInt64.max)
        var small = Int64.min
        var one = 1.0
        var bytes: [UInt8] = [0, 255]
        return [
            "text": makeString("a\u{0}b\u{1F600}"),
            "true": kCFBooleanTrue,
            "false": kCFBooleanFalse,
            "one": number,
            "big": CFNumberCreate(nil, wideType, &big),
            "small": CFNumberCreate(nil, .sInt64Type, &small),
            "double": CFNumberCreate(nil, .doubleType, &one),
            "date": CFDateCreate(nil, 0.0625),
            "data": CFDataCreate(nil, &bytes, 2),
            "no-data": CFDataCreate(nil, &bytes, 0),
            "array": array([kCFBooleanTrue, dictionary(["in": array([])])]),
            "": dictionary([:]),
        ]
    }

    private static var widths: [String: AnyObject] {
        func number(_ type: CFNumberType, _ value: some Any) -> CFNumber {
            withUnsafePointer(to: value) { CFNumberCreate(nil, type, $0) }
        }
        return [
            "sint8": number(.sInt8Type, Int8.min), "sint16": number(.sInt16Type, Int16.min),
            "sint32": number(.sInt32Type, Int32.min), "sint64": number(.sInt64Type, Int64.min),
            "char": number(.charType, Int8.min), "short": number(.shortType, Int16.min),
            "int": number(.intType, Int32.min), "long": number(.longType, Int.min),
            "long-long": number(.longLongType, Int64.max), "index": number(.cfIndexType, CFIndex.max),
            "float32": number(.float32Type, Float.greatestFiniteMagnitude), "float": number(.floatType, Float(0.5)),
            "float64": number(.float64Type, Double.leastNonzeroMagnitude), "double": number(.doubleType, 1e300),
            "nan": number(.doubleType, Double.nan),
        ]
    }

    // Unsafe for the compiler: only one command at a time uses it.
    nonisolated(unsafe) private static let ownDictionary = OwnDictionary()

    /// Consists of Foundation's objects, which CoreFoundation accepts as its own.
    private static var foundation: CFDictionary {
        converted(
            NSDictionary(
                objects: [
                    NSNumber(value: true), NSNumber(value: UInt64.max), NSArray(object: NSString("x")), NSData(),
                ],
                forKeys: [NSString("bool"), NSString("big"), NSString("array"), NSString("data")]
            )
        )
    }

    private static func converted(_ dictionary: NSDictionary) -> CFDictionary {
        Unmanaged<CFDictionary>.fromOpaque(pointer(dictionary)).takeUnretainedValue()
    }

    private static func nested(_ count: Int) -> CFDictionary {
        (1..<count).reduce(dictionary([:])) { inner, _ in dictionary(["in": inner]) }
    }

    private static func dictionary(_ values: [String: AnyObject]) -> CFMutableDictionary {
        dictionary(values.map { (makeString($0.key), $0.value) })
    }

    private static func dictionary(_ pairs: [(CFString, AnyObject)]) -> CFMutableDictionary {
        var (keys, values) = (kCFTypeDictionaryKeyCallBacks, kCFTypeDictionaryValueCallBacks)
        let result: CFMutableDictionary = CFDictionaryCreateMutable(nil, 0, &keys, &values)
        for (key, value) in pairs { CFDictionarySetValue(result, pointer(key), pointer(value)) }
        return result
    }

    private static func array(_ values: [AnyObject]) -> CFArray {
        var callbacks = kCFTypeArrayCallBacks
        let result: CFMutableArray = CFArrayCreateMutable(nil, 0, &callbacks)
        for value in values { CFArrayAppendValue(result, pointer(value)) }
        return result
    }

    /// Never released: this program ends soon.
    private static func pointer(_ object: AnyObject) -> UnsafeRawPointer {
        UnsafeRawPointer(Unmanaged.passRetained(object).toOpaque())
    }
}
