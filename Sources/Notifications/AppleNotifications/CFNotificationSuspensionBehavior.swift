import NotifyCenter

/// What happens to the distributed notifications for an observer while its center is suspended (CF-S3…S6). It belongs to the
/// registration (CF-A7), and is without effect on the local and the Darwin center (CF-S13).
public enum CFNotificationSuspensionBehavior: Sendable {
    /// They are lost.
    case drop
    /// Of each name and object the last one waits.
    case coalesce
    /// They wait, as many as there is room for.
    case hold
    /// They are delivered nevertheless, and what waits in the center before them.
    case deliverImmediately
    /// A number that is none of Apple's four, such as the 0 that Apple recommends where the behaviour is without effect. The
    /// distributed center takes it for ``coalesce``, Foundation's default.
    case unknown(CFIndex)
}

extension CFNotificationSuspensionBehavior: RawRepresentable, Hashable {
    /// The behaviour of this number, never `nil`: as on Apple, every number is one, and those that mean nothing are
    /// ``unknown(_:)``.
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
