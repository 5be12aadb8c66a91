import NotifyCenter

/// What happens to the distributed notifications for an observer while its center is suspended (CF-S3…S6). It belongs to the
/// registration (CF-A7), and is without effect on the local and the Darwin center (CF-S13).
///
/// On Apple, `init(rawValue:)` takes any number for a behaviour. Here it is `nil` for all but these four, because none other means
/// anything.
public enum CFNotificationSuspensionBehavior: CFIndex, Sendable {
    /// They are lost.
    case drop = 1
    /// Of each name and object the last one waits.
    case coalesce = 2
    /// They wait, as many as there is room for.
    case hold = 3
    /// They are delivered nevertheless, and what waits in the center before them.
    case deliverImmediately = 4
}

extension SuspensionBehavior {
    init(_ behavior: CFNotificationSuspensionBehavior) {
        self =
            switch behavior {
            case .drop: .drop
            case .coalesce: .coalesce
            case .hold: .hold
            case .deliverImmediately: .deliverImmediately
            }
    }
}
