import DBusTransport
import NotifyCenter
package import NotifydProtocol

/// One connection that has, or had, something to tell. Pure.
struct Client {
    /// What is known of one of its names.
    struct NameDetails: Hashable {
        var state: StateReport?
        var registrations: [RegistrationReport] = []
    }

    /// A path that one of its tokens monitors.
    struct Monitor: Hashable {
        /// No other monitor of this notifyd has it, nor ever had.
        let id: UInt64
        let name: NotificationName
        let path: String
        let flags: UInt32
    }

    let identity: ClientIdentity
    var names: [NotificationName: NameDetails] = [:]
    /// Of the UTF-8 of all names.
    var nameBytes = 0
    /// By token.
    var monitors: [Int32: Monitor] = [:]
    /// The last inquiry that it has answered.
    var answered: UInt64 = 0

    /// As it is listed.
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

/// Who is behind a connection, by the bus's word.
package struct ClientIdentity: Sendable, Hashable {
    package var user: UInt32
    package var groups: [UInt32]
    /// 0 where the bus cannot tell.
    package var process: UInt32
    /// The program's file; empty where this process may not see it.
    package var program: String

    package init(user: UInt32, groups: [UInt32] = [], process: UInt32, program: String = "") {
        self.user = user
        self.groups = groups
        self.process = process
        self.program = program
    }

    /// As the access rules ask for it.
    var access: AccessRules.Identity { .init(user: user, groups: groups) }
}

extension ClientIdentity {
    init(_ credentials: DBusConnection.PeerCredentials) {
        self.init(
            user: credentials.userID,
            groups: credentials.groupIDs,
            process: credentials.processID ?? 0,
            program: credentials.executable ?? ""
        )
    }
}

/// A call is refused.
package struct Refusal: Error, Sendable, Hashable {
    package let name: NotifydProtocol.ErrorName
    /// What was attempted, what is in the way, and what helps.
    package let message: String

    package init(_ name: NotifydProtocol.ErrorName, _ message: String) {
        self.name = name
        self.message = message
    }
}
