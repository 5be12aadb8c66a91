/// How a distributed notification is posted (CF-T8); the bits are CoreFoundation's.
public struct PostingOptions: OptionSet, Sendable, Hashable {
    /// The bits.
    public let rawValue: UInt

    /// Options of these bits; unknown ones have no effect.
    public init(rawValue: UInt) { self.rawValue = rawValue }

    /// Suspended observers get it at once too, whatever their ``SuspensionBehavior``, and before it all that waits for them
    /// (CF-P5, CF-S7).
    public static let deliverImmediately = PostingOptions(rawValue: 1 << 0)

    /// To the observers of all login sessions (CF-P7). A center on the system bus reaches all of them anyway; one on another
    /// bus cannot, and refuses the post.
    public static let postToAllSessions = PostingOptions(rawValue: 1 << 1)
}
