import CoreFoundation
import NotifyCenter

/// Makes CoreFoundation objects of property-list values: real CFBooleans, and CFNumbers that keep their kind (CF-U7).
enum UserInfoWriter {
    static func makeDictionary(_ userInfo: UserInfo) -> CFDictionary {
        let keys = userInfo.keys.map(makeCFString)
        let values = userInfo.values.map(makeObject)
        var keyPointers = keys.map(pointer)
        var valuePointers = values.map(pointer)
        // The dictionary retains what it holds; until then the arrays do.
        return withExtendedLifetime((keys, values)) {
            var keyCallbacks = kCFTypeDictionaryKeyCallBacks
            var valueCallbacks = kCFTypeDictionaryValueCallBacks
            return CFDictionaryCreate(
                nil,
                &keyPointers,
                &valuePointers,
                keys.count,
                &keyCallbacks,
                &valueCallbacks
            )
        }
    }

    private static func makeObject(_ value: PropertyListValue) -> CFTypeRef {
        switch value {
        case .string(let text): return makeCFString(text)
        case .integer(var number): return CFNumberCreate(nil, .sInt64Type, &number)
        case .unsigned(let number): return WideInteger(Int128(number)).makeNumber()
        case .double(var number): return CFNumberCreate(nil, .doubleType, &number)
        case .bool(let flag): return flag ? kCFBooleanTrue : kCFBooleanFalse
        case .date(let date): return CFDateCreate(nil, date.secondsSinceReferenceDate)
        case .data(let bytes): return CFDataCreate(nil, bytes, bytes.count)
        case .array(let elements): return makeArray(elements)
        case .dictionary(let dictionary): return makeDictionary(dictionary)
        }
    }

    private static func makeArray(_ elements: [PropertyListValue]) -> CFArray {
        let objects = elements.map(makeObject)
        var pointers = objects.map(pointer)
        return withExtendedLifetime(objects) {
            var callbacks = kCFTypeArrayCallBacks
            return CFArrayCreate(nil, &pointers, objects.count, &callbacks)
        }
    }

    private static func pointer(_ object: CFTypeRef) -> UnsafeRawPointer? {
        UnsafeRawPointer(Unmanaged.passUnretained(object).toOpaque())
    }
}
