package import NotifyCenter

/// A connection that has called notifyd, and its registrations. Pure.
struct Client {
    struct NameDetails: Hashable {
        var state: StateReport?
        var registrations: [RegistrationReport] = []
        var monitors: [MonitorReport] = []
    }

    let identity: Identity
    /// Increases with each connection, and orders the lists.
    let number: UInt64
    var names: [NotificationName: NameDetails] = [:]
    /// The amount that notifyd stores for it.
    var amount = Amount()
    /// Whether it has reported to this notifyd.
    var hasReported = false
    var lists = 0

    func report(_ name: NotificationName, _ details: NameDetails) -> NameReport {
        NameReport(
            name: name.rawValue,
            state: details.state,
            monitors: details.monitors,
            registrations: details.registrations
        )
    }
}

package struct Refusal: Error, Sendable, Hashable {
    package let name: NotifydProtocol.ErrorName
    /// The attempted operation, the obstacle, and the remedy.
    package let message: String

    package init(_ name: NotifydProtocol.ErrorName, _ message: String) {
        self.name = name
        self.message = message
    }
}
