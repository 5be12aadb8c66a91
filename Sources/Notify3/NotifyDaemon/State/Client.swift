import NotifyCenter
package import NotifydProtocol

/// A connection that has, or had, registrations. Pure.
struct Client {
    /// The known facts about one of its names.
    struct NameDetails: Hashable {
        var state: StateReport?
        var registrations: [RegistrationReport] = []
        var monitors: [MonitorReport] = []
    }

    let identity: Identity
    /// Rises with each connection, and orders the lists.
    let number: UInt64
    var names: [NotificationName: NameDetails] = [:]
    /// How much it has notifyd keep.
    var amount = Amount()
    /// Whether this notifyd has its first report.
    var hasReported = false
    /// How many lists it waits for.
    var lists = 0

    /// One of its names, for the lists.
    func report(_ name: NotificationName, _ details: NameDetails) -> NameReport {
        NameReport(
            name: name.rawValue,
            state: details.state,
            monitors: details.monitors,
            registrations: details.registrations
        )
    }
}

/// A call is refused.
package struct Refusal: Error, Sendable, Hashable {
    package let name: NotifydProtocol.ErrorName
    /// The attempted operation, the obstacle, and the remedy.
    package let message: String

    package init(_ name: NotifydProtocol.ErrorName, _ message: String) {
        self.name = name
        self.message = message
    }
}
