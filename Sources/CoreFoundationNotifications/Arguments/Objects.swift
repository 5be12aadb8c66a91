import CoreFoundation

/// The object at an address that a client gave for one, whose type has been looked at. Not by a cast: those to CoreFoundation's
/// types tell nothing apart on Linux, and fail for Foundation's own objects, which CoreFoundation takes for its own.
func object<Object: AnyObject>(at pointer: UnsafeRawPointer, as type: Object.Type) -> Object {
    Unmanaged<Object>.fromOpaque(pointer).takeUnretainedValue()
}

/// The object's type.
func typeIdentifier(at pointer: UnsafeRawPointer) -> CFTypeID { CFGetTypeID(object(at: pointer, as: CFTypeRef.self)) }

/// What CoreFoundation calls the object's type; for one that is none of CoreFoundation's, its class.
func typeName(at pointer: UnsafeRawPointer) -> String {
    let identifier = typeIdentifier(at: pointer)
    // 0 is “Not A Type”, 1 “CFType”: what Foundation's and a client's own classes say that have no counterpart.
    guard identifier > 1, let name = try? text(CFCopyTypeIDDescription(identifier)) else {
        return String(describing: type(of: object(at: pointer, as: AnyObject.self)))
    }
    return name
}
