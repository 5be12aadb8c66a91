import CoreFoundation

/// The object at an address that a client gave for one, whose type has been looked at. Not by a cast: those to CoreFoundation's
/// types tell nothing apart on Linux, and fail for Foundation's own objects, which CoreFoundation takes for its own.
func object<Object: AnyObject>(at pointer: UnsafeRawPointer, as type: Object.Type) -> Object {
    Unmanaged<Object>.fromOpaque(pointer).takeUnretainedValue()
}

/// The object's type.
func typeIdentifier(at pointer: UnsafeRawPointer) -> CFTypeID { CFGetTypeID(object(at: pointer, as: CFTypeRef.self)) }

/// What CoreFoundation calls the object's type.
func typeName(at pointer: UnsafeRawPointer) -> String { text(CFCopyTypeIDDescription(typeIdentifier(at: pointer))) }
