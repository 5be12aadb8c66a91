import CoreFoundation

/// `CFNotificationCenter` as a class of CoreFoundation's runtime. Equality and hash are those of the address, as the runtime
/// has them for a class that says nothing of them.
enum RuntimeClass {
    /// Registered with the first use, once.
    static let typeIdentifier: CFTypeID = {
        // CoreFoundation keeps the address.
        let definition = UnsafeMutablePointer<CFRuntimeClass>.allocate(capacity: 1)
        definition.initialize(to: CFRuntimeClass())
        let name: StaticString = "CFNotificationCenter"
        definition.pointee.className = UnsafeRawPointer(name.utf8Start).assumingMemoryBound(to: CChar.self)
        definition.pointee.copyDebugDesc = { object in
            object.flatMap { Unmanaged.passRetained(describe($0)) }
        }
        return _CFRuntimeRegisterClass(definition)
    }()

    /// An object of the class that no number of releases frees, because no client owns a center (CF-T1).
    static func makeImmortalInstance() -> UnsafeMutableRawPointer {
        guard let instance = _CFRuntimeCreateInstance(nil, typeIdentifier, 0, nil) else {
            // The runtime refuses a class that it does not know, or has no memory: both before anything of a client's happened.
            preconditionFailure("CoreFoundation makes no object of the class CFNotificationCenter")
        }
        let address = instance.toOpaque()
        // What CoreFoundation's own constants have in this place (INIT_CFRUNTIME_BASE).
        address.assumingMemoryBound(to: CFRuntimeBase.self).pointee._swift_rc = UInt(_CF_CONSTANT_OBJECT_STRONG_RC)
        return address
    }

    private static func describe(_ object: CFTypeRef) -> CFString {
        let address = Unmanaged.passUnretained(object).toOpaque()
        let kind = Center.of(address)?.kind.rawValue ?? "unknown"
        return makeCFString("<CFNotificationCenter \(address)>{\(kind)}")
    }
}
