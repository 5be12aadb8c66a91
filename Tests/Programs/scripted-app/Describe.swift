import CoreFoundation
import Foundation

/// Returns a CoreFoundation object as text that shows its type: `1`, `1.0` and `true` differ.
func describe(_ object: AnyObject) -> String {
    let pointer = Unmanaged.passUnretained(object).toOpaque()
    func cast<Object: AnyObject>(_ type: Object.Type) -> Object {
        Unmanaged<Object>.fromOpaque(pointer).takeUnretainedValue()
    }
    switch CFGetTypeID(object) {
    case CFStringGetTypeID(): return text(cast(CFString.self)).debugDescription
    case CFBooleanGetTypeID(): return object === kCFBooleanTrue ? "true" : "false"
    case CFNumberGetTypeID(): return describe(number: cast(CFNumber.self))
    case CFDateGetTypeID(): return "date \(CFDateGetAbsoluteTime(cast(CFDate.self)))"
    case CFDataGetTypeID():
        let data = cast(CFData.self)
        return "data \((0..<CFDataGetLength(data)).map { CFDataGetBytePtr(data)[$0] })"
    case CFArrayGetTypeID():
        let array = cast(CFArray.self)
        let elements = (0..<CFArrayGetCount(array)).compactMap { CFArrayGetValueAtIndex(array, $0) }
        return "[\(elements.map(describe).joined(separator: ", "))]"
    case CFDictionaryGetTypeID():
        let dictionary = cast(CFDictionary.self)
        var keys = [UnsafeRawPointer?](repeating: nil, count: CFDictionaryGetCount(dictionary))
        var values = keys
        CFDictionaryGetKeysAndValues(dictionary, &keys, &values)
        let pairs = zip(keys.compactMap(\.self), values.compactMap(\.self)).map { describe($0) + ": " + describe($1) }
        return "{\(pairs.sorted().joined(separator: ", "))}"
    default: return "something else"
    }
}

private func describe(_ pointer: UnsafeRawPointer) -> String {
    describe(Unmanaged<AnyObject>.fromOpaque(pointer).takeUnretainedValue())
}

private func describe(number: CFNumber) -> String {
    if CFNumberIsFloatType(number) {
        var value = 0.0
        CFNumberGetValue(number, .doubleType, &value)
        return "\(value)"
    }
    var value: (high: Int64, low: UInt64) = (0, 0)
    CFNumberGetValue(number, Samples.wideType, &value)
    return "\(Int128(value.high) << 64 | Int128(value.low))"
}

func text(_ string: CFString) -> String {
    var units = [UniChar](repeating: 0, count: CFStringGetLength(string))
    CFStringGetCharacters(string, CFRange(location: 0, length: units.count), &units)
    return String(decoding: units, as: UTF16.self)
}

func makeString(_ text: String) -> CFString {
    let units = Array(text.utf16)
    return CFStringCreateWithCharacters(nil, units, units.count)
}
