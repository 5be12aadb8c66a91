import CoreFoundation
import Foundation

// What a container holds is handed to `body`, and kept alive while that runs. Of CoreFoundation's own containers and Foundation's
// plain ones, CoreFoundation's functions hand out what is stored there. Of a subclass of somebody's own they hand out what it
// returns, and have the object keep it: without a lock, and not the keys of a second reading, which are freed at once.
// Foundation's accessors change nothing in the object.

/// Calls `body` with the elements of an array.
func withElements<Result>(
    of array: CFArray,
    _ body: ([UnsafeRawPointer?]) throws(ArgumentError) -> Result
) throws(ArgumentError) -> Result {
    let object = unsafeBitCast(array, to: NSArray.self)
    guard PlainClasses.arrays.contains(ObjectIdentifier(type(of: object))) else {
        // A plain array, which holds what the other returns.
        let copy = NSArray(array: (0..<object.count).map(object.object(at:)))
        return try withElements(of: unsafeBitCast(copy, to: CFArray.self), body)
    }
    defer { withExtendedLifetime(object) {} }
    return try body((0..<CFArrayGetCount(array)).map { CFArrayGetValueAtIndex(array, $0) })
}

/// Calls `body` with the keys of a dictionary and their values.
func withEntries<Result>(
    of dictionary: CFDictionary,
    _ body: ([(key: UnsafeRawPointer?, value: UnsafeRawPointer?)]) throws(ArgumentError) -> Result
) throws(ArgumentError) -> Result {
    let object = unsafeBitCast(dictionary, to: NSDictionary.self)
    guard PlainClasses.dictionaries.contains(ObjectIdentifier(type(of: object))) else {
        let returned = object.keyEnumerator().map(\.self)
        let keys = NSArray(array: returned)
        let values = NSArray(array: returned.map { object.object(forKey: $0) ?? NSNull() })
        return try withElements(of: unsafeBitCast(keys, to: CFArray.self)) { keys throws(ArgumentError) in
            try withElements(of: unsafeBitCast(values, to: CFArray.self)) { values throws(ArgumentError) in
                try body(Array(zip(keys, values)).map { (key: $0, value: $1) })
            }
        }
    }
    defer { withExtendedLifetime(object) {} }
    var keys = [UnsafeRawPointer?](repeating: nil, count: CFDictionaryGetCount(dictionary))
    var values = keys
    CFDictionaryGetKeysAndValues(dictionary, &keys, &values)
    return try body(zip(keys, values).map { (key: $0, value: $1) })
}

/// The classes whose objects store what CoreFoundation's functions hand out.
private enum PlainClasses {
    static let arrays = classes([NSArray.self, NSMutableArray.self], CFArrayCreate(nil, nil, 0, nil))
    static let dictionaries = classes(
        [NSDictionary.self, NSMutableDictionary.self],
        CFDictionaryCreate(nil, nil, nil, 0, nil, nil)
    )

    /// CoreFoundation's own class has no public name; it is that of an object that CoreFoundation made.
    private static func classes(_ foundations: [AnyClass], _ made: CFTypeRef?) -> Set<ObjectIdentifier> {
        let own: AnyClass? = made.map { type(of: unsafeBitCast($0, to: AnyObject.self)) }
        return Set((foundations + [own].compactMap(\.self)).map { ObjectIdentifier($0) })
    }
}
