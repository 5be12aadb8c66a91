import CoreFoundation
package import Foundation
package import NotifyCenter

/// Converts Swift values and objects of Foundation and CoreFoundation to property lists. Recursive, down to a maximum
/// depth.
///
/// Objects and Swift values are distinguished first, because a cast between the two succeeds too often: `as? Bool`
/// accepts an `NSNumber(value: 1)`.
package struct PropertyListReader {
    /// The beginning of the path in an error.
    let root: String
    /// The maximum nesting. The limit keeps a value that contains itself from exhausting the stack.
    let maximumDepth: Int

    /// - Parameter maximumDepth: a message of the bus holds 20.
    package init(root: String, maximumDepth: Int = 20) { (self.root, self.maximumDepth) = (root, maximumDepth) }

    /// Converts a value to a property list.
    ///
    /// - Parameter depth: the number of containers around the value.
    func value(_ value: Any, depth: Int = 0) throws(PropertyListError) -> PropertyListValue {
        if type(of: value) is AnyClass { return try object(value as AnyObject, depth: depth) }
        switch value {
        case let optional as any AnyOptional:
            guard let wrapped = optional.wrapped else { throw error("nil", "Leave it out.") }
            return try self.value(wrapped, depth: depth)
        case let text as String: return .string(text)
        case let text as Substring: return .string(String(text))
        case let flag as Bool: return .bool(flag)
        case let number as any BinaryInteger: return try integer(number)
        case let number as Double: return .double(number)
        case let number as Float: return .double(Double(number))
        case let number as CGFloat: return .double(Double(number))
        case let date as Date: return try self.date(date)
        case let data as Data: return .data(Array(data))
        case let elements as [Any]: return .array(try array(elements, depth: depth))
        case let dictionary as [AnyHashable: Any]: return .dictionary(try self.dictionary(dictionary, depth: depth))
        default: throw unsupported(value)
        }
    }

    func dictionary(_ dictionary: [AnyHashable: Any], depth: Int = 0) throws(PropertyListError) -> UserInfo {
        try entries(dictionary.lazy.map { (key: $0.key.base, value: $0.value) }, depth: depth)
    }

    /// Converts a dictionary that is an object, and so may contain itself.
    package func dictionary(_ dictionary: NSDictionary, depth: Int = 0) throws(PropertyListError) -> UserInfo {
        try entries(dictionary.storedEntries, depth: depth)
    }

    private func object(_ object: AnyObject, depth: Int) throws(PropertyListError) -> PropertyListValue {
        switch object {
        case let text as NSString: return .string(try self.text(text))
        case let number as NSNumber: return try self.number(number)
        case let date as NSDate: return try self.date(date as Date)
        case let data as NSData: return .data(Array(data as Data))
        case let array as NSArray: return .array(try self.array(array.storedElements, depth: depth))
        case let dictionary as NSDictionary: return .dictionary(try self.dictionary(dictionary, depth: depth))
        default: throw unsupported(object)
        }
    }

    // MARK: Containers

    private func array(_ elements: [Any], depth: Int) throws(PropertyListError) -> [PropertyListValue] {
        try checkDepth(depth)
        var result: [PropertyListValue] = []
        result.reserveCapacity(elements.count)
        for (index, element) in elements.enumerated() {
            do throws(PropertyListError) {
                result.append(try value(element, depth: depth + 1))
            } catch {
                throw error.at(index)
            }
        }
        return result
    }

    private func entries(
        _ entries: some Collection<(key: Any, value: Any)>,
        depth: Int
    ) throws(PropertyListError) -> UserInfo {
        try checkDepth(depth)
        var result = UserInfo(minimumCapacity: entries.count)
        for (key, value) in entries {
            let key = try text(ofKey: key)
            do throws(PropertyListError) {
                guard result.updateValue(try self.value(value, depth: depth + 1), forKey: key) == nil else {
                    throw error("a second key that is equal as String", "Give each value a different key.")
                }
            } catch {
                throw error.under(key)
            }
        }
        return result
    }

    private func text(ofKey key: Any) throws(PropertyListError) -> String {
        // An object first: a cast to Substring accepts it too, and replaces an unpaired surrogate with U+FFFD.
        if type(of: key) is AnyClass, let text = key as AnyObject as? NSString {
            do throws(TextError) {
                return try unicodeText(of: text)
            } catch {
                throw self.error("a key with \(error.found)", error.remedy)
            }
        }
        switch key {
        case let text as String: return text
        case let text as Substring: return String(text)
        default: throw error("a key of type \(typeName(of: key))", "Give it a String as key.")
        }
    }

    private func checkDepth(_ depth: Int) throws(PropertyListError) {
        guard depth < maximumDepth else {
            throw error("nested more than \(maximumDepth) deep, or contained in itself", "Flatten it.")
        }
    }

    // MARK: Scalars

    private func text(_ text: NSString) throws(PropertyListError) -> String {
        do throws(TextError) {
            return try unicodeText(of: text)
        } catch {
            throw self.error(error.found, error.remedy)
        }
    }

    private func number(_ number: NSNumber) throws(PropertyListError) -> PropertyListValue {
        if number.isBoolean { return .bool(number.boolValue) }
        switch number.objCType.pointee {
        case CChar(ascii: "d"), CChar(ascii: "f"): return .double(number.doubleValue)
        case CChar(ascii: "Q"): return try integer(number.wideIntegerValue)
        default: return .integer(number.int64Value)
        }
    }

    private func date(_ date: Date) throws(PropertyListError) -> PropertyListValue {
        let date = PropertyListDate(date)
        guard date.isFinite else { throw error("a date that is NaN or infinite", "Leave it out, or send the number.") }
        return .date(date)
    }

    private func integer(_ number: any BinaryInteger) throws(PropertyListError) -> PropertyListValue {
        if let number = Int64(exactly: number) { return .integer(number) }
        if let number = UInt64(exactly: number) { return .unsigned(number) }
        throw error("an integer beyond Int64.min or UInt64.max", "Send it as a String.")
    }

    // MARK: Errors

    private func unsupported(_ value: Any) -> PropertyListError {
        error("of type \(typeName(of: value))", "Leave it out, or send it as one of these.")
    }

    private func error(_ found: String, _ remedy: String) -> PropertyListError {
        PropertyListError(root, found: found, remedy: remedy)
    }
}

/// The name of a value's type. CoreFoundation's own objects have internal Swift classes; for them it is
/// CoreFoundation's name.
private func typeName(of value: Any) -> String {
    let name = String(describing: type(of: value))
    return name.hasPrefix("_") ? coreFoundationName(of: value as AnyObject) ?? name : name
}

/// The CoreFoundation name of an object's type, if CoreFoundation knows the type. On Linux all of its objects are
/// subclasses of NSObject. With an object of another class, CFGetTypeID reads invalid memory and may end the process.
package func coreFoundationName(of object: AnyObject) -> String? {
    guard object is NSObject else { return nil }
    let identifier = CFGetTypeID(object)
    // 0 is “Not A Type” and 1 is “CFType”, for classes that have no counterpart in CoreFoundation.
    guard identifier > 1, let name = CFCopyTypeIDDescription(identifier) else { return nil }
    return unsafeBitCast(name, to: NSString.self) as String
}

extension CChar {
    fileprivate init(ascii: Unicode.Scalar) { self = CChar(UInt8(ascii: ascii)) }
}

/// Gives access to the value of an optional whose type is known only at run time.
private protocol AnyOptional {
    var wrapped: Any? { get }
}

extension Optional: AnyOptional {
    fileprivate var wrapped: Any? { self }
}

// MARK: Stored objects

// CoreFoundation's functions return the objects that a container holds unchanged. Foundation's own accessors first
// convert each object to Swift's types, with all of its contents. For a container that contains itself that never ends.

extension NSNumber {
    /// Whether it is a truth value. `objCType` does not tell: for a truth value it is the same as for an `Int8` on
    /// other systems.
    fileprivate var isBoolean: Bool { CFGetTypeID(self) == CFBooleanGetTypeID() }

    /// The value of an integer that may be wider than 64 bits. CoreFoundation's public headers do not declare the type.
    /// Its number is 17 (`kCFNumberSInt128Type`), and its high half is stored before the low half (`CFSInt128Struct`).
    fileprivate var wideIntegerValue: Int128 {
        guard let type = CFNumberType(rawValue: 17) else { preconditionFailure("a C enumeration takes every number") }
        var halves: (high: Int64, low: UInt64) = (0, 0)
        CFNumberGetValue(unsafeBitCast(self, to: CFNumber.self), type, &halves)
        return Int128(halves.high) << 64 | Int128(halves.low)
    }
}

extension NSArray {
    fileprivate var storedElements: [Any] {
        guard StoringClasses.arrays.contains(ObjectIdentifier(type(of: self))) else {
            return (0..<count).map(object(at:))
        }
        let array = unsafeBitCast(self, to: CFArray.self)
        return withExtendedLifetime(self) {
            (0..<CFArrayGetCount(array)).map { storedObject(CFArrayGetValueAtIndex(array, $0)) }
        }
    }
}

extension NSDictionary {
    fileprivate var storedEntries: [(key: Any, value: Any)] {
        guard StoringClasses.dictionaries.contains(ObjectIdentifier(type(of: self))) else {
            return keyEnumerator().map { (key: $0, value: object(forKey: $0) ?? NSNull()) }
        }
        let dictionary = unsafeBitCast(self, to: CFDictionary.self)
        return withExtendedLifetime(self) {
            var keys = [UnsafeRawPointer?](repeating: nil, count: CFDictionaryGetCount(dictionary))
            var values = keys
            CFDictionaryGetKeysAndValues(dictionary, &keys, &values)
            return zip(keys, values).map { (key: storedObject($0), value: storedObject($1)) }
        }
    }
}

/// The object at this address. CoreFoundation's containers may hold NULL, which is returned as a value that no property
/// list contains.
private func storedObject(_ address: UnsafeRawPointer?) -> Any {
    address.map { Unmanaged<AnyObject>.fromOpaque($0).takeUnretainedValue() } ?? NSNull()
}

/// The classes whose objects CoreFoundation's functions can read directly. For a subclass, CoreFoundation's functions
/// call the subclass for its elements and do not keep them alive safely. Foundation's accessors therefore read
/// subclasses.
private enum StoringClasses {
    static let arrays = classes([NSArray.self, NSMutableArray.self], CFArrayCreate(nil, nil, 0, nil))
    static let dictionaries = classes(
        [NSDictionary.self, NSMutableDictionary.self],
        CFDictionaryCreate(nil, nil, nil, 0, nil, nil)
    )

    /// CoreFoundation's own class has no public name, so it is taken from an object that CoreFoundation made.
    private static func classes(_ foundations: [AnyClass], _ made: CFTypeRef?) -> Set<ObjectIdentifier> {
        let own: AnyClass? = made.map { type(of: unsafeBitCast($0, to: AnyObject.self)) }
        return Set((foundations + [own].compactMap(\.self)).map { ObjectIdentifier($0) })
    }
}

/// A value that is not a property list, and so cannot be sent with a distributed notification (CF-U1, CF-U2).
public struct PropertyListError: Error, Sendable, Hashable, CustomStringConvertible {
    private enum Step: Hashable {
        case key(String)
        case index(Int)
    }

    private let root: String
    private var steps: [Step] = []
    let remedy: String

    /// A description of the value, such as `NSNull` or `a key of type Int`.
    public let found: String

    init(_ root: String, found: String, remedy: String) { (self.root, self.found, self.remedy) = (root, found, remedy) }

    /// The place of the value, such as `userInfo["a"][2]`. A path of more than 12 steps ends after the first 12, with
    /// “…”.
    public var path: String {
        let shown = steps.reversed().prefix(12).map { step in
            switch step {
            case .key(let key): "[\"\(key)\"]"
            case .index(let index): "[\(index)]"
            }
        }
        return root + shown.joined() + (shown.count < steps.count ? "…" : "")
    }

    /// The place, the value, the allowed types and the remedy, in one line.
    public var description: String {
        "\(path): \(found). A property list holds String, integers up to UInt64.max, Double, Bool, Date, Data, arrays, and "
            + "dictionaries with String keys. \(remedy)"
    }

    /// The same error, seen from the container that holds the value under this key.
    func under(_ key: String) -> PropertyListError { under(.key(key)) }

    /// The same error, seen from the array that holds the value at this index.
    func at(_ index: Int) -> PropertyListError { under(.index(index)) }

    private func under(_ step: Step) -> PropertyListError {
        var error = self
        error.steps.append(step)
        return error
    }
}
