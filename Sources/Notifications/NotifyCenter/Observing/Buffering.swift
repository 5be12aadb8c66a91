/// How much waits for an observer that is slower than the posts, and what gives way. Reading from the bus never stops for it
/// (architecture, D4); what gives way is counted.
public struct Buffering: Sendable, Hashable {
    enum Policy: Hashable {
        case coalescing
        case oldest(Int)
        case newest(Int)
        case unbounded
    }

    let policy: Policy

    /// Keeps the newest `limit` notifications; older ones are dropped. A limit below 1 counts as 1.
    public static func bufferingNewest(_ limit: Int) -> Buffering { Buffering(policy: .newest(max(1, limit))) }

    /// Keeps the oldest `limit` notifications; newer ones are dropped. A limit below 1 counts as 1.
    public static func bufferingOldest(_ limit: Int) -> Buffering { Buffering(policy: .oldest(max(1, limit))) }

    /// Keeps everything: for observers that are sure to keep up.
    public static let unbounded = Buffering(policy: .unbounded)

    /// One pending notification stands for all that arrived meanwhile, as the Darwin center has it: after the last post
    /// there is at least one delivery.
    static let coalescing = Buffering(policy: .coalescing)

    /// What distributed observers get without asking: the newest 4096.
    public static let standard = bufferingNewest(4096)
}
