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

extension NotificationName {
    /// What shared device mode broadcasts whenever the device's account changed: go and ask who is signed in.
    public static let sharedModeCurrentAccountChanged: NotificationName = "SHARED_MODE_CURRENT_ACCOUNT_CHANGED"
}

/// The object that a distributed notification is about, compared as text (CF-M4), byte by byte like a name.
struct NotificationObject: Hashable, Sendable {
    let text: String

    static func == (left: NotificationObject, right: NotificationObject) -> Bool { isSameText(left.text, right.text) }
    func hash(into hasher: inout Hasher) { hashText(text, into: &hasher) }
}

private func isSameText(_ left: String, _ right: String) -> Bool {
    left.utf8.count == right.utf8.count && left.utf8.elementsEqual(right.utf8)
}

private func hashText(_ text: String, into hasher: inout Hasher) {
    var text = text
    text.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
}
