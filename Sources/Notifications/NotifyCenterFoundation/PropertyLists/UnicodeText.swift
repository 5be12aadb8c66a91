import CoreFoundation
package import Foundation

/// The reason why an object has no Unicode text: a description, and a remedy.
package struct TextError: Error {
    package let found: String
    package let remedy: String
}

/// The maximum number of UTF-16 units, checked before the conversion: a notification holds at most 1 MiB (CF-U9), and
/// each unit becomes at least one byte.
private let maximumLength = 1024 * 1024

/// Returns the text of a string object.
///
/// - Throws: ``TextError`` if it is too long for a message, or if an unpaired surrogate makes it invalid Unicode.
package func unicodeText(of string: NSString) throws(TextError) -> String {
    let length = string.length
    guard length <= maximumLength else {
        throw TextError(
            found: "a text of \(length) UTF-16 units, which is more than a notification holds",
            remedy: "Put the text in a file and post its name."
        )
    }
    // These two classes store a String, which is Unicode and needs no conversion.
    if type(of: string) == NSString.self || type(of: string) == NSMutableString.self { return string as String }
    let units = [UniChar](unsafeUninitializedCapacity: length) { buffer, count in
        let range = CFRange(location: 0, length: length)
        CFStringGetCharacters(unsafeBitCast(string, to: CFString.self), range, buffer.baseAddress)
        count = length
    }
    guard let text = units.withUnsafeBufferPointer(transcode) else {
        throw TextError(
            found: "a text with an unpaired surrogate, which is not Unicode text",
            remedy: "Leave it out, or replace it with U+FFFD."
        )
    }
    return text
}

// MARK: UTF-16

/// Converts UTF-16 to a String; `nil` if there is an unpaired surrogate.
///
/// `String(decoding:as:)` takes about ten times as long, and replaces such a surrogate with U+FFFD.
private func transcode(_ units: UnsafeBufferPointer<UInt16>) -> String? {
    var count = 0
    guard forEachScalar(in: units, { count += UTF8.width($0) }) else { return nil }
    return String(unsafeUninitializedCapacity: count) { utf8 in
        var end = 0
        _ = forEachScalar(in: units) { scalar in
            for byte in scalar.utf8 {
                utf8[end] = byte
                end += 1
            }
        }
        return end
    }
}

/// Calls `body` for each scalar up to an unpaired surrogate. Returns whether it reached the end.
private func forEachScalar(in units: UnsafeBufferPointer<UInt16>, _ body: (Unicode.Scalar) -> Void) -> Bool {
    var index = 0
    while index < units.count {
        if let scalar = Unicode.Scalar(units[index]) {
            body(scalar)
            index += 1
        } else {
            guard index + 1 < units.count, let scalar = scalar(units[index], units[index + 1]) else { return false }
            body(scalar)
            index += 2
        }
    }
    return true
}

/// Returns the scalar of a surrogate pair; `nil` if the two units are not a pair.
private func scalar(_ lead: UInt16, _ trail: UInt16) -> Unicode.Scalar? {
    guard UTF16.isLeadSurrogate(lead), UTF16.isTrailSurrogate(trail) else { return nil }
    return Unicode.Scalar(0x10000 + (UInt32(lead & 0x3FF) << 10 | UInt32(trail & 0x3FF)))
}
