import DBusTransport
import NotifydProtocol

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
