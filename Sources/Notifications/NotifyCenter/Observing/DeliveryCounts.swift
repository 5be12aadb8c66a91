/// What happened to the notifications for an observer, or for all of a center.
public struct DeliveryCounts: Sendable, Hashable {
    /// Handed to the observer.
    public internal(set) var delivered: UInt64 = 0
    /// Merged into a later one, which was delivered or waits: the Darwin center does it to a busy observer, and the distributed
    /// one to a suspended ``SuspensionBehavior/coalesce``.
    public internal(set) var coalesced: UInt64 = 0
    /// Lost because there was no room in the observer's ``Buffering``.
    public internal(set) var dropped: UInt64 = 0
    /// Not kept because the center was suspended and the observer one of ``SuspensionBehavior/drop``.
    public internal(set) var suppressed: UInt64 = 0
}

extension DeliveryCounts {
    mutating func add(_ other: DeliveryCounts) {
        delivered += other.delivered
        coalesced += other.coalesced
        dropped += other.dropped
        suppressed += other.suppressed
    }
}
