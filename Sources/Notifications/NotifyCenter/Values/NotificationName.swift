import Glibc

/// A notification's name: any Unicode text of any length, the empty one included.
///
/// Names are equal when their UTF-8 is: case counts, and so does the difference between `é` as one scalar and as two, which
/// `String` itself takes for equal (CF-M3).
public struct NotificationName: RawRepresentable, Sendable {
    /// The text.
    public let rawValue: String

    /// A name with this text.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// A name with this text.
    public init(_ rawValue: String) { self.rawValue = rawValue }
}

extension NotificationName: Hashable {
    /// Whether both have the same UTF-8.
    public static func == (left: NotificationName, right: NotificationName) -> Bool {
        isSameText(left.rawValue, right.rawValue)
    }

    /// Feeds the UTF-8.
    public func hash(into hasher: inout Hasher) { hashText(rawValue, into: &hasher) }
}

extension NotificationName: ExpressibleByStringInterpolation, CustomStringConvertible {
    /// The name that a literal spells, with or without interpolations.
    public init(stringLiteral value: String) { rawValue = value }

    /// The text.
    public var description: String { rawValue }
}

/// The object that a distributed notification is about, compared as text (CF-M4), byte by byte like a name.
package struct NotificationObject: Hashable, Sendable {
    package let text: String

    package init(text: String) { self.text = text }

    package static func == (left: Self, right: Self) -> Bool { isSameText(left.text, right.text) }
    package func hash(into hasher: inout Hasher) { hashText(text, into: &hasher) }
}

/// Where notifications come from in the sense of coalescing: one name and one object (CF-S4).
struct NotificationSource: Hashable, Sendable {
    let name: NotificationName
    let object: NotificationObject?
}

private func isSameText(_ left: String, _ right: String) -> Bool {
    var right = right
    return right.withUTF8 { left.hasUTF8($0) }
}

private func hashText(_ text: String, into hasher: inout Hasher) {
    var text = text
    text.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
}

extension String {
    /// Whether this is the text with these bytes.
    func hasUTF8(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
        utf8.withContiguousStorageIfAvailable { own in
            guard own.count == bytes.count, let left = own.baseAddress, let right = bytes.baseAddress else {
                return own.count == bytes.count
            }
            return memcmp(left, right, own.count) == 0
        } ?? utf8.elementsEqual(bytes)
    }
}
