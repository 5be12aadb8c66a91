import CoreFoundation
import Foundation

/// The object at an address that a client gave for one, whose type has been looked at. Not by a cast: those to CoreFoundation's
/// types tell nothing apart on Linux, and fail for Foundation's own objects, which CoreFoundation takes for its own.
func object<Object: AnyObject>(at pointer: UnsafeRawPointer, as type: Object.Type) -> Object {
    Unmanaged<Object>.fromOpaque(pointer).takeUnretainedValue()
}

/// The object's type; 0 for one that is none of CoreFoundation's. All of CoreFoundation's are subclasses of NSObject on Linux. In an
/// object of another class CFGetTypeID reads what is not there, and may end the process.
func typeIdentifier(at pointer: UnsafeRawPointer) -> CFTypeID {
    type(of: object(at: pointer, as: AnyObject.self)) is NSObject.Type
        ? CFGetTypeID(object(at: pointer, as: CFTypeRef.self)) : 0
}

/// What CoreFoundation calls the object's type; for one that is none of CoreFoundation's, its class.
func typeName(at pointer: UnsafeRawPointer) -> String {
    let identifier = typeIdentifier(at: pointer)
    // 0 is “Not A Type”, 1 “CFType”: what classes of Foundation's and of a client's say that have no counterpart.
    guard identifier > 1, let name = try? text(CFCopyTypeIDDescription(identifier)) else {
        return String(describing: type(of: object(at: pointer, as: AnyObject.self)))
    }
    return name
}
