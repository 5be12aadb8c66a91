import NotifyCenter

/// A notification's name: any text, compared exactly (CF-M3).
///
/// ```swift
/// extension CFNotificationName {
///     static let settingsChanged = CFNotificationName("com.example.settingsChanged" as CFString)
/// }
/// ```
///
/// Unlike Apple's it is `Sendable`, and it keeps the text and not the object: of a mutable string, what it says at the time.
public struct CFNotificationName: RawRepresentable, Sendable {
    let name: NotificationName

    /// The name with this text.
    public init(_ rawValue: CFString) { name = NotificationName(rawValue as String) }

    /// The name with this text.
    public init(rawValue: CFString) { self.init(rawValue) }

    init(_ name: NotificationName) { self.name = name }

    /// The text.
    public var rawValue: CFString { name.rawValue as CFString }
}

extension CFNotificationName: Hashable {
    // Written out, all three: the standard library has them for what has a raw value, and compares that, which for two strings
    // means whether they look alike.

    /// Whether both have the same UTF-8.
    public static func == (left: CFNotificationName, right: CFNotificationName) -> Bool { left.name == right.name }

    /// Whether the UTF-8 differs.
    public static func != (left: CFNotificationName, right: CFNotificationName) -> Bool { !(left == right) }

    /// Feeds the UTF-8.
    public func hash(into hasher: inout Hasher) { hasher.combine(name) }
}
