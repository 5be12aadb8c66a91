import CoreFoundation
import Foundation
import NotifyCenter
import NotifyCenterFoundation

/// An argument that a `CFNotificationCenter` function cannot use. These functions return no errors; `UnthrownFailures`
/// reports this one.
public struct ArgumentError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The name of the argument, such as `object`.
    public let argument: String
    /// A description of the value that was passed.
    public let found: String
    /// A suggestion for the caller.
    public let remedy: String

    /// The argument, the value and the remedy in one line.
    public var description: String { "\(argument) is \(found); \(remedy)" }
}

/// Converts the arguments of the C functions to Swift's types. A pointer must lead to an object; these functions check
/// its kind.
enum Arguments {
    static func text(_ pointer: UnsafeRawPointer, argument: String) throws(ArgumentError) -> String {
        let object = object(at: pointer)
        guard let string = object as? NSString else {
            throw ArgumentError(
                argument: argument,
                found: "a \(name(of: object))",
                remedy: "it must be a CFString; nothing was done"
            )
        }
        do throws(TextError) {
            return try unicodeText(of: string)
        } catch {
            throw ArgumentError(argument: argument, found: error.found, remedy: "nothing was done. \(error.remedy)")
        }
    }

    /// The property list of a CFDictionary.
    ///
    /// - Throws: ``ArgumentError`` for an object of another kind; `PropertyListError` with the place of the first value
    ///   that cannot be sent (CF-U2).
    static func userInfo(_ pointer: UnsafeRawPointer) throws -> UserInfo {
        let object = object(at: pointer)
        guard let dictionary = object as? NSDictionary else {
            throw ArgumentError(
                argument: "userInfo",
                found: "a \(name(of: object))",
                remedy: "it must be a CFDictionary; nothing was posted"
            )
        }
        return try PropertyListReader(root: "userInfo").dictionary(dictionary)
    }

    private static func name(of object: AnyObject) -> String {
        coreFoundationName(of: object) ?? String(describing: type(of: object))
    }

    /// Returns the object as `AnyObject`. A cast to a CoreFoundation type distinguishes nothing on Linux, where each
    /// CoreFoundation object has one of Foundation's classes.
    private static func object(at pointer: UnsafeRawPointer) -> AnyObject {
        Unmanaged<AnyObject>.fromOpaque(pointer).takeUnretainedValue()
    }
}

// MARK: CoreFoundation objects for callbacks

/// Makes a CFString of any text. CoreFoundation's UTF-8 functions alter some texts: they stop at U+0000 and drop a
/// leading U+FEFF.
func makeCFString(_ text: String) -> CFString {
    let units = Array(text.utf16)
    return CFStringCreateWithCharacters(nil, units, units.count)
}

/// Makes a CFDictionary of property-list values. Truth values become CFBooleans, and numbers keep their kind (CF-U7).
func makeCFDictionary(_ userInfo: UserInfo) -> CFDictionary {
    let keys = userInfo.keys.map(makeCFString)
    let values = userInfo.values.map(makeObject)
    var keyPointers = keys.map(pointer)
    var valuePointers = values.map(pointer)
    // The dictionary retains its contents; until then the arrays do.
    return withExtendedLifetime((keys, values)) {
        var keyCallbacks = kCFTypeDictionaryKeyCallBacks
        var valueCallbacks = kCFTypeDictionaryValueCallBacks
        return CFDictionaryCreate(nil, &keyPointers, &valuePointers, keys.count, &keyCallbacks, &valueCallbacks)
    }
}

private func makeCFArray(_ elements: [PropertyListValue]) -> CFArray {
    let objects = elements.map(makeObject)
    var pointers = objects.map(pointer)
    return withExtendedLifetime(objects) {
        var callbacks = kCFTypeArrayCallBacks
        return CFArrayCreate(nil, &pointers, objects.count, &callbacks)
    }
}

private func makeObject(_ value: PropertyListValue) -> CFTypeRef {
    switch value {
    case .string(let text): return makeCFString(text)
    case .integer(var number): return CFNumberCreate(nil, .sInt64Type, &number)
    // CoreFoundation's public functions make no number beyond Int64.max. Foundation's numbers are CoreFoundation
    // numbers too.
    case .unsigned(let number): return NSNumber(value: number)
    case .double(var number): return CFNumberCreate(nil, .doubleType, &number)
    case .bool(let flag): return flag ? kCFBooleanTrue : kCFBooleanFalse
    case .date(let date): return CFDateCreate(nil, date.secondsSinceReferenceDate)
    case .data(let bytes): return CFDataCreate(nil, bytes, bytes.count)
    case .array(let elements): return makeCFArray(elements)
    case .dictionary(let dictionary): return makeCFDictionary(dictionary)
    }
}

private func pointer(_ object: CFTypeRef) -> UnsafeRawPointer? {
    UnsafeRawPointer(Unmanaged.passUnretained(object).toOpaque())
}
