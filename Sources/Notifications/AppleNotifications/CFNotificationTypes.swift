import NotifyCenter

// MARK: Names

/// A notification's name: any text, compared exactly (CF-M3).
///
/// ```swift
/// extension CFNotificationName {
///     static let settingsChanged = CFNotificationName("com.example.settingsChanged" as CFString)
/// }
/// ```
///
/// Unlike Apple's type it is `Sendable`, and it keeps a copy of the text: later changes of a mutable string have no
/// effect.
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
    // All three are written out: the standard library would compare the raw values, and two strings that look alike are
    // equal to it.

    /// Whether both have the same UTF-8.
    public static func == (left: CFNotificationName, right: CFNotificationName) -> Bool { left.name == right.name }

    /// Whether the UTF-8 differs.
    public static func != (left: CFNotificationName, right: CFNotificationName) -> Bool { !(left == right) }

    /// Hashes the UTF-8.
    public func hash(into hasher: inout Hasher) { hasher.combine(name) }
}

// MARK: Suspension behaviours

/// How the distributed center treats notifications for an observer while it is suspended (CF-S3…S6). The behaviour
/// belongs to the registration (CF-A7). The local and the Darwin center ignore it (CF-S13).
public enum CFNotificationSuspensionBehavior: Sendable {
    /// Notifications are lost.
    case drop
    /// The last notification of each name and object waits, within the limits of ``hold``.
    case coalesce
    /// The newest 4096 wait, at most 16 MiB of them; older ones are dropped (CF-S5).
    case hold
    /// Notifications are delivered anyway, after everything that waits in the center.
    case deliverImmediately
    /// A number other than Apple's four, such as the 0 that Apple recommends if a center ignores the behaviour. The
    /// distributed center treats it as ``coalesce``, Foundation's default.
    case unknown(CFIndex)
}

extension CFNotificationSuspensionBehavior: RawRepresentable, Hashable {
    /// Returns the behaviour of this number. Never `nil`: as on Apple, every number is accepted, and a number without a
    /// meaning is ``unknown(_:)``.
    public init?(rawValue: CFIndex) {
        self =
            switch rawValue {
            case 1: .drop
            case 2: .coalesce
            case 3: .hold
            case 4: .deliverImmediately
            default: .unknown(rawValue)
            }
    }

    /// Apple's number.
    public var rawValue: CFIndex {
        switch self {
        case .drop: 1
        case .coalesce: 2
        case .hold: 3
        case .deliverImmediately: 4
        case .unknown(let number): number
        }
    }
}

extension SuspensionBehavior {
    init(_ behavior: CFNotificationSuspensionBehavior) {
        self = SuspensionBehavior(rawValue: behavior.rawValue) ?? .coalesce
    }
}

// MARK: Options

/// An option of ``CFNotificationCenterPostNotificationWithOptions(_:_:_:_:_:)``: suspended observers get the
/// notification at once too, whatever their behaviour (CF-P5).
public let kCFNotificationDeliverImmediately: CFOptionFlags = 1 << 0

/// An option of ``CFNotificationCenterPostNotificationWithOptions(_:_:_:_:_:)``: the notification is for the observers
/// of all login sessions (CF-P7). The system bus reaches all of them. Another bus reaches one session, which
/// `UnthrownFailures` reports once per process (CF-B8).
public let kCFNotificationPostToAllSessions: CFOptionFlags = 1 << 1
