import CoreFoundation
import Foundation

// CoreFoundation's functions hand out the objects that a container holds as they are. Foundation's own accessors turn each into
// Swift's types first, with all that is in it: for a container that contains itself, without end.

extension NSNumber {
    /// Whether it is a truth value. Its `objCType` does not tell: it is that of an `Int8` on other systems.
    var isBoolean: Bool { CFGetTypeID(self) == CFBooleanGetTypeID() }
}

extension NSArray {
    /// The elements as they are stored.
    var storedElements: [Any] {
        guard isFoundationsOwn(self, [NSArray.self, NSMutableArray.self], "_NSCFArray") else { return map(\.self) }
        let array = unsafeBitCast(self, to: CFArray.self)
        return withExtendedLifetime(self) {
            (0..<CFArrayGetCount(array)).map { storedObject(CFArrayGetValueAtIndex(array, $0)) }
        }
    }
}

extension NSDictionary {
    /// Keys and values as they are stored.
    var storedEntries: [(key: Any, value: Any)] {
        guard isFoundationsOwn(self, [NSDictionary.self, NSMutableDictionary.self], "_NSCFDictionary") else {
            return map { (key: $0.key, value: $0.value) }
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

/// A subclass of somebody's own stores elsewhere, and CoreFoundation's functions do not keep alive all of what it hands out: the keys of
/// a second reading are freed at once.
private func isFoundationsOwn(_ object: AnyObject, _ classes: [AnyClass], _ nameOfCoreFoundations: String) -> Bool {
    let type: AnyClass = type(of: object)
    return classes.contains { $0 == type } || String(describing: type) == nameOfCoreFoundations
}

/// The object at this address; NULL, which CoreFoundation's containers may hold, is none of a property list's types.
private func storedObject(_ address: UnsafeRawPointer?) -> Any {
    address.map { Unmanaged<AnyObject>.fromOpaque($0).takeUnretainedValue() } ?? NSNull()
}
