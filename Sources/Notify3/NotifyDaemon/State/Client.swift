import NotifyCenter
package import NotifydProtocol

/// A connection that has, or had, registrations. Pure.
struct Client {
    /// The known facts about one of its names.
    struct NameDetails: Hashable {
        var state: StateReport?
        var registrations: [RegistrationReport] = []
    }

    /// A path that one of its tokens monitors.
    struct Monitor: Hashable {
        /// Unique among all monitors of this notifyd, past ones included.
        let id: UInt64
        let name: NotificationName
        let path: String
        let flags: UInt32
    }

    let identity: Identity
    var names: [NotificationName: NameDetails] = [:]
    /// Of the UTF-8 of all names.
    var nameBytes = 0
    /// By token.
    var monitors: [Int32: Monitor] = [:]
    /// The last inquiry that it has answered.
    var answered: UInt64 = 0

    /// Its report for the lists.
    func report(suspensions: UInt32) -> ProcessReport {
        var reports: [NotificationName: NameReport] = [:]
        for (name, details) in names {
            reports[name] = NameReport(
                name: name.rawValue,
                state: details.state,
                registrations: details.registrations.sorted { $0.token < $1.token }
            )
        }
        for (token, monitor) in monitors.sorted(by: { $0.key < $1.key }) {
            reports[monitor.name]?.monitors.append(
                MonitorReport(token: token, path: monitor.path, flags: monitor.flags)
            )
        }
        return ProcessReport(
            suspensions: suspensions,
            names: reports.values.sorted { $0.name < $1.name }
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
