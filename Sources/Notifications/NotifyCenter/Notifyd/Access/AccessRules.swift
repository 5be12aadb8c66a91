package import DBus
import Glibc

/// The identity of a process, as far as the access rules need it.
package struct Identity: Sendable, Hashable {
    /// The effective user.
    package var user: UInt32
    /// The effective group and the supplementary groups, in no order.
    package var groups: [UInt32]
    /// The process; 0 if the bus does not know it.
    package var process: UInt32

    package init(user: UInt32, groups: [UInt32] = [], process: UInt32 = 0) {
        (self.user, self.groups, self.process) = (user, groups, process)
    }

    /// The identity that the bus reports for a connection.
    package init(_ credentials: DBusConnection.PeerCredentials) {
        self.init(user: credentials.userID, groups: credentials.groupIDs, process: credentials.processID ?? 0)
    }

    package static var ofThisProcess: Identity {
        Identity(user: geteuid(), groups: [getegid()] + supplementaryGroups, process: UInt32(getpid()))
    }

    private static var supplementaryGroups: [UInt32] {
        let count = getgroups(0, nil)
        return [gid_t](unsafeUninitializedCapacity: max(0, Int(count))) { buffer, initialized in
            initialized = max(0, Int(getgroups(CInt(buffer.count), buffer.baseAddress)))
        }
    }
}

/// The rules that say who may register and post which names (rule a.5 of notify(3)). Pure.
package struct AccessRules: Sendable, Hashable {
    /// The use of a name that a process asks for.
    package enum Access: UInt16, Sendable {
        /// To register.
        case read = 1
        /// To post, and to set state.
        case write = 2
    }

    /// The names that begin with a prefix, and the users that may use them.
    package struct Reservation: Sendable, Hashable {
        package var prefix: String
        package var user: UInt32
        package var group: UInt32
        /// The bits of ``Access``, shifted by 0 for the user, 4 for the group, 8 for others.
        package var access: UInt16

        /// Every user may register and post.
        package static let everything: UInt16 = 0x333

        fileprivate func allows(_ wanted: Access, by identity: Identity) -> Bool {
            (identity.user == user && access & wanted.rawValue != 0)
                || (access >> 4 & wanted.rawValue != 0 && identity.groups.contains(group)) || allowsOthers(wanted)
        }

        fileprivate func allowsOthers(_ wanted: Access) -> Bool { access >> 8 & wanted.rawValue != 0 }
    }

    /// The reservations, in no order. There should be one for each prefix; if there are two, both must allow.
    package var reservations: [Reservation]

    package init(reservations: [Reservation] = []) { self.reservations = reservations }

    /// Whether `identity` may use `name` in this way.
    package func allows(_ access: Access, _ name: String, by identity: Identity) -> Bool {
        if identity.user == 0 { return true }
        return switch NameScope(name) {
        case .process: true
        case .user(let owner): owner == identity.user
        case .root: false
        case .everyone: deciding(name).allSatisfy { $0.allows(access, by: identity) }
        }
    }

    /// Whether every user may use `name` in this way. If so, the caller need not determine the user.
    package func isOpen(_ access: Access, _ name: String) -> Bool {
        switch NameScope(name) {
        case .process: true
        case .user, .root: false
        case .everyone: deciding(name).allSatisfy { $0.allowsOthers(access) }
        }
    }

    /// Returns the reservations with the longest prefix of `name`.
    private func deciding(_ name: String) -> [Reservation] {
        // Fast path: this runs for every post, and few machines have a configuration.
        if reservations.isEmpty { return [] }
        let matching = reservations.filter { name.utf8.starts(with: $0.prefix.utf8) }
        let longest = matching.lazy.map { $0.prefix.utf8.count }.max()
        return matching.filter { $0.prefix.utf8.count == longest }
    }
}

/// The owner of a name, according to its form (rule a.4 of notify(3)).
package enum NameScope: Sendable, Hashable {
    /// `self.…`: this process. The name stays within it.
    case process
    /// `user.uid.UID` or `user.uid.UID.…`: this user, and root.
    case user(UInt32)
    /// Any other `user.uid.…`: root.
    case root
    /// Every user, unless the configuration says otherwise.
    case everyone

    package init(_ name: String) {
        // By bytes: an accent after the prefix would form one character with its last letter, and the prefix would not
        // match.
        let bytes = name.utf8
        guard let first = bytes.first, first == UInt8(ascii: "s") || first == UInt8(ascii: "u") else {
            // Fast path: almost all names are like this, and this runs for every post.
            self = .everyone
            return
        }
        if bytes.starts(with: "self.".utf8) {
            self = .process
        } else if bytes.starts(with: "user.uid.".utf8) {
            let digits = bytes.dropFirst("user.uid.".utf8.count).prefix { $0 != UInt8(ascii: ".") }
            // Only the usual form of a number counts: `user.uid.0501` does not belong to a user.
            let text = String(Substring(digits))
            self = UInt32(text).flatMap { String($0) == text ? .user($0) : nil } ?? .root
        } else {
            self = .everyone
        }
    }
}
