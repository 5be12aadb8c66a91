import CoreFoundation

/// The text of an argument that must be a CFString.
func text(_ pointer: UnsafeRawPointer, argument: String) throws(ArgumentError) -> String {
    guard let text = text(at: pointer) else {
        throw ArgumentError(
            argument: argument,
            found: "a \(typeName(at: pointer))",
            remedy: "it must be a CFString; nothing was done"
        )
    }
    return text
}

/// The text of a CFString; `nil` for an object of another type.
func text(at pointer: UnsafeRawPointer) -> String? {
    guard typeIdentifier(at: pointer) == CFStringGetTypeID() else { return nil }
    return text(object(at: pointer, as: CFString.self))
}

/// The text of a CFString. A surrogate that stands alone, which is no Unicode text, becomes U+FFFD.
func text(_ string: CFString) -> String {
    let length = CFStringGetLength(string)
    let units = [UniChar](unsafeUninitializedCapacity: length) { buffer, count in
        CFStringGetCharacters(string, CFRange(location: 0, length: length), buffer.baseAddress)
        count = length
    }
    return String(decoding: units, as: UTF16.self)
}

/// A CFString of any text, U+0000 and a leading U+FEFF included, which its constructors from UTF-8 treat as special.
func makeCFString(_ text: String) -> CFString {
    let units = Array(text.utf16)
    return CFStringCreateWithCharacters(nil, units, units.count)
}
