import NotifyCenter

/// A connection that has called notifyd, and its registrations. Pure.
struct Client {
    let identity: Identity
    /// Increases with each connection, and orders the lists.
    let number: UInt64
    var names: [NotificationName: NameReport] = [:]
    /// The amount that notifyd stores for it.
    var amount = Amount()
    /// Whether it has reported to this notifyd.
    var hasReported = false
    var lists = 0
}

struct Refusal: Error, Sendable, Hashable {
    let name: NotifydProtocol.ErrorName
    /// The attempted operation, the obstacle, and the remedy.
    let message: String

    init(_ name: NotifydProtocol.ErrorName, _ message: String) { (self.name, self.message) = (name, message) }
}
