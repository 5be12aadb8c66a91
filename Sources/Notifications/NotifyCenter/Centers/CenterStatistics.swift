/// The notifications of a center since the start of this process, and the state of its connection to the bus.
public struct CenterStatistics: Sendable, Hashable {
    /// Observers in place.
    public let observers: Int
    /// Notifications that arrived from the bus.
    public let received: UInt64
    /// Signals that arrived on this center's interfaces without the form of a notification. They were ignored.
    public let malformed: UInt64
    /// Signals that arrived on this center's interfaces over the limit of a notification (CF-U9). They were ignored.
    public let tooLarge: UInt64
    /// Deliveries that wait, for a slow observer or for the end of a suspension.
    public let waiting: Int
    /// What became of the notifications, over all observers.
    public let deliveries: DeliveryCounts
    /// Match rules that this process asks the bus for; equal ones count once. This and what follows is of the connection, which the
    /// process's centers on one bus share.
    public let matchRules: Int
    /// Those of them that the bus refused for their number, so that one broad rule takes their place.
    public let coveredMatchRules: Int
    /// Those of them that are not in force, because there is no bus or it refused them: their observers get nothing. They are asked for again
    /// each time that the connection is restored.
    public let matchRulesNotInForce: Int
    /// How often the connection was restored after the bus was lost.
    public let reconnections: UInt64
    /// Signals and calls that arrived while a handler waited for the bus on the reading thread, and were never handled: there were too many, or
    /// the bus was lost meanwhile.
    public let unhandled: UInt64
}
