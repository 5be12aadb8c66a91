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
public struct CFNotificationName: RawRepresentable, Hashable, Sendable {
    let name: NotificationName

    /// The name with this text.
    public init(_ rawValue: CFString) { name = NotificationName(rawValue as String) }

    /// The name with this text.
    public init(rawValue: CFString) { self.init(rawValue) }

    init(_ name: NotificationName) { self.name = name }

    /// The text.
    public var rawValue: CFString { name.rawValue as CFString }
}
