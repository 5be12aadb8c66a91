import Glibc

/// A notification's name: any Unicode text of any length, including the empty text.
///
/// Names are equal if their UTF-8 is equal. Case matters, and so does the difference between `é` as one scalar and as
/// two, which are equal as `String` (CF-M3).
public struct NotificationName: RawRepresentable, Sendable {
    /// The text.
    public let rawValue: String

    /// Creates a name with this text.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// Creates a name with this text.
    public init(_ rawValue: String) { self.rawValue = rawValue }
}

extension NotificationName: Hashable {
    /// Whether both have the same UTF-8.
    public static func == (left: NotificationName, right: NotificationName) -> Bool {
        isSameText(left.rawValue, right.rawValue)
    }

    /// Hashes the UTF-8.
    public func hash(into hasher: inout Hasher) { hashText(rawValue, into: &hasher) }
}

extension NotificationName: ExpressibleByStringInterpolation, CustomStringConvertible {
    /// Creates a name from a literal, with or without interpolations.
    public init(stringLiteral value: String) { rawValue = value }

    /// The text.
    public var description: String { rawValue }
}

/// The object of a distributed notification, compared as text (CF-M4), byte by byte like a name.
package struct NotificationObject: Hashable, Sendable {
    package let text: String

    package init(text: String) { self.text = text }

    package static func == (left: Self, right: Self) -> Bool { isSameText(left.text, right.text) }
    package func hash(into hasher: inout Hasher) { hashText(text, into: &hasher) }
}

/// The source of notifications for coalescing: one name and one object (CF-S4).
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
    /// Whether this text has exactly these bytes.
    func hasUTF8(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
        utf8.withContiguousStorageIfAvailable { own in
            guard own.count == bytes.count, let left = own.baseAddress, let right = bytes.baseAddress else {
                return own.count == bytes.count
            }
            return memcmp(left, right, own.count) == 0
        } ?? utf8.elementsEqual(bytes)
    }
}
