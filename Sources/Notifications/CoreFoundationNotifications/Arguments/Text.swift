import CoreFoundation

/// Why an object does not give a text: what it is, and what helps.
struct TextError: Error {
    let found: String
    let remedy: String
}

/// More code units than this are refused before they are converted: a message of the bus holds 16 MiB at most, and each unit
/// becomes a byte at least.
private let maximumLength = 16 * 1024 * 1024

/// The text of an argument that must be a CFString.
func text(_ pointer: UnsafeRawPointer, argument: String) throws(ArgumentError) -> String {
    do throws(TextError) {
        guard typeIdentifier(at: pointer) == CFStringGetTypeID() else {
            throw TextError(found: "a \(typeName(at: pointer))", remedy: "it must be a CFString")
        }
        return try text(object(at: pointer, as: CFString.self))
    } catch {
        throw ArgumentError(argument: argument, found: error.found, remedy: "\(error.remedy); nothing was done")
    }
}

/// The text of a CFString.
func text(_ string: CFString) throws(TextError) -> String {
    let length = CFStringGetLength(string)
    guard length <= maximumLength else {
        throw TextError(
            found: "a text of \(length) UTF-16 units, which is more than a message of the bus holds",
            remedy: "put the text in a file and post its name"
        )
    }
    let units = [UniChar](unsafeUninitializedCapacity: length) { buffer, count in
        CFStringGetCharacters(string, CFRange(location: 0, length: length), buffer.baseAddress)
        count = length
    }
    guard let text = units.withUnsafeBufferPointer(transcode) else {
        throw TextError(
            found: "a text that holds a surrogate that stands alone, which is no Unicode text",
            remedy: "leave it out, or put U+FFFD in its place"
        )
    }
    return text
}

/// A CFString of any text, U+0000 and a leading U+FEFF included, which its constructors from UTF-8 treat as special.
func makeCFString(_ text: String) -> CFString {
    let units = Array(text.utf16)
    return CFStringCreateWithCharacters(nil, units, units.count)
}
