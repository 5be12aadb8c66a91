/// What went through a center of this process since its start.
public struct CenterStatistics: Sendable, Hashable {
    /// Registrations in force.
    public let observers: Int
    /// Notifications that arrived from the bus.
    public let received: UInt64
    /// Signals that arrived on this center's interfaces without the form of a notification, and were ignored.
    public let malformed: UInt64
    /// Deliveries that wait, for a slow observer or for the end of a suspension.
    public let waiting: Int
    /// What became of them, over all observers.
    public let deliveries: DeliveryCounts
    /// Match rules that this process asks the bus for; equal ones count once.
    public let matchRules: Int
    /// Those of them that the bus refused for their number, so that one broad rule stands in for them.
    public let coveredMatchRules: Int
}
