import CoreFoundation
package import Foundation
package import NotifyCenter

/// Reads property lists out of Swift's values and out of Foundation's and CoreFoundation's objects. Recursive, down to a bound.
///
/// Objects and Swift's own values are told apart first, because a cast between the two answers “yes” too often: `as? Bool` takes an
/// `NSNumber(value: 1)`.
package struct PropertyListReader {
    /// What the path of an error begins with.
    let root: String
    /// How many containers may be in each other. The bound keeps a value that contains itself from exhausting the stack.
    let maximumDepth: Int

    /// - Parameter maximumDepth: 20 is what a message of the bus carries.
    package init(root: String, maximumDepth: Int = 20) {
        self.root = root
        self.maximumDepth = maximumDepth
    }

    /// The property list that a value stands for.
    ///
    /// - Parameter depth: how many containers the value is in.
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

    /// The property list of a dictionary that is an object, and so may contain itself.
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
                    throw error("a second key that is equal as String", "Give each value a key of its own.")
                }
            } catch {
                throw error.under(key)
            }
        }
        return result
    }

    private func text(ofKey key: Any) throws(PropertyListError) -> String {
        // An object first: a cast to Substring takes it too, and puts U+FFFD in the place of a surrogate that stands alone.
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

/// What a value's type is called. CoreFoundation's own objects have Swift classes that nobody knows by name.
private func typeName(of value: Any) -> String {
    let name = String(describing: type(of: value))
    return name.hasPrefix("_") ? coreFoundationName(of: value as AnyObject) ?? name : name
}

/// What CoreFoundation calls an object's type, if it knows the type. All of its objects are subclasses of NSObject on Linux; in an object
/// of another class CFGetTypeID reads what is not there, and may end the process.
package func coreFoundationName(of object: AnyObject) -> String? {
    guard object is NSObject else { return nil }
    let identifier = CFGetTypeID(object)
    // 0 is “Not A Type”, 1 “CFType”: what classes say that have no counterpart in CoreFoundation.
    guard identifier > 1, let name = CFCopyTypeIDDescription(identifier) else { return nil }
    return unsafeBitCast(name, to: NSString.self) as String
}

extension CChar {
    fileprivate init(ascii: Unicode.Scalar) { self = CChar(UInt8(ascii: ascii)) }
}

/// An optional whose type is known at run time only.
private protocol AnyOptional {
    var wrapped: Any? { get }
}

extension Optional: AnyOptional {
    fileprivate var wrapped: Any? { self }
}

// MARK: What objects store

// CoreFoundation's functions hand out the objects that a container holds as they are. Foundation's own accessors first turn each
// of them into Swift's types, with all that is in it: for a container that contains itself, without end.

extension NSNumber {
    /// Whether it is a truth value. Its `objCType` does not tell: it is that of an `Int8` on other systems.
    fileprivate var isBoolean: Bool { CFGetTypeID(self) == CFBooleanGetTypeID() }

    /// The value of an integer that may be wider than 64 bits. CoreFoundation's public headers do not declare the type: its number is 17
    /// (`kCFNumberSInt128Type`), and its high half is stored before the low one (`CFSInt128Struct`).
    fileprivate var wideIntegerValue: Int128 {
        guard let type = CFNumberType(rawValue: 17) else { preconditionFailure("a C enumeration takes every number") }
        var halves: (high: Int64, low: UInt64) = (0, 0)
        CFNumberGetValue(unsafeBitCast(self, to: CFNumber.self), type, &halves)
        return Int128(halves.high) << 64 | Int128(halves.low)
    }
}

extension NSArray {
    /// The elements as they are stored.
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
    /// Keys and values as they are stored.
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

/// The object at this address. NULL, which CoreFoundation's containers may hold, reads as a value that no property list has.
private func storedObject(_ address: UnsafeRawPointer?) -> Any {
    address.map { Unmanaged<AnyObject>.fromOpaque($0).takeUnretainedValue() } ?? NSNull()
}

/// The classes whose objects store what CoreFoundation's functions hand out. CoreFoundation's functions ask a subclass for its elements and
/// do not keep them alive safely. So Foundation's accessors read subclasses.
private enum StoringClasses {
    static let arrays = classes([NSArray.self, NSMutableArray.self], CFArrayCreate(nil, nil, 0, nil))
    static let dictionaries = classes(
        [NSDictionary.self, NSMutableDictionary.self],
        CFDictionaryCreate(nil, nil, nil, 0, nil, nil)
    )

    /// CoreFoundation's own class has no public name: it is that of an object that CoreFoundation made.
    private static func classes(_ foundations: [AnyClass], _ made: CFTypeRef?) -> Set<ObjectIdentifier> {
        let own: AnyClass? = made.map { type(of: unsafeBitCast($0, to: AnyObject.self)) }
        return Set((foundations + [own].compactMap(\.self)).map { ObjectIdentifier($0) })
    }
}
