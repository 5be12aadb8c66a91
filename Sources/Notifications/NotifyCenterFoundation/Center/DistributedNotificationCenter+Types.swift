import NotifyCenter

extension DistributedNotificationCenter {
    /// Which center ``forType(_:)`` returns.
    public struct CenterType: RawRepresentable, Hashable, Sendable {
        /// The type's text.
        public let rawValue: String

        /// A type with this text.
        public init(rawValue: String) { self.rawValue = rawValue }

        // Apple's spelling.
        // swift-format-ignore: DontRepeatTypeInStaticProperties
        /// The center between the processes of this computer's login session: the only one that there is.
        public static let localNotificationCenterType = CenterType(rawValue: "NSLocalNotificationCenterType")
    }

    /// What happens to the notifications for an observer while the center is ``suspended``. While it is not, all four are the
    /// same (CF-S10).
    public enum SuspensionBehavior: UInt, Sendable {
        /// They are lost (CF-S3).
        case drop = 1
        /// Of each name and object the last one waits (CF-S4). The default.
        case coalesce = 2
        /// All wait: the newest 4096 (CF-S5).
        case hold = 3
        /// They are delivered nevertheless, and whatever waits in the center before them (CF-S6).
        case deliverImmediately = 4
    }

    /// How a notification is posted.
    public struct Options: OptionSet, Sendable, Hashable {
        /// The bits, those of CoreFoundation (CF-T8).
        public let rawValue: UInt

        /// Options of these bits; unknown ones have no effect.
        public init(rawValue: UInt) { self.rawValue = rawValue }

        /// Suspended observers get it at once too, whatever their ``SuspensionBehavior``, and before it all that waits for them
        /// (CF-P5, CF-S7).
        public static let deliverImmediately = Options(rawValue: PostingOptions.deliverImmediately.rawValue)

        /// To the observers of all login sessions (CF-P7). A center on the system bus reaches all of them anyway; one on another
        /// bus cannot, and refuses the post.
        public static let postToAllSessions = Options(rawValue: PostingOptions.postToAllSessions.rawValue)
    }
}

extension NotifyCenter.SuspensionBehavior {
    init(_ behavior: DistributedNotificationCenter.SuspensionBehavior) {
        self =
            switch behavior {
            case .drop: .drop
            case .coalesce: .coalesce
            case .hold: .hold
            case .deliverImmediately: .deliverImmediately
            }
    }
}
