/// Who may register and post which names. Pure.
package struct AccessRules: Sendable, Hashable {
    /// Who asks.
    package struct Identity: Sendable, Hashable {
        package var user: UInt32
        package var groups: [UInt32]

        package init(user: UInt32, groups: [UInt32] = []) {
            self.user = user
            self.groups = groups
        }
    }

    /// What for.
    package enum Access: Sendable {
        /// To register.
        case read
        /// To post, and to set state.
        case write
    }

    /// Names that begin with a prefix, and who may use them.
    package struct Reservation: Sendable, Hashable {
        package var prefix: String
        package var user: UInt32
        package var group: UInt32
        /// READ 1, WRITE 2, shifted by 0 for the user, 4 for the group, 8 for others.
        package var access: UInt16

        package init(prefix: String, user: UInt32, group: UInt32, access: UInt16) {
            self.prefix = prefix
            self.user = user
            self.group = group
            self.access = access
        }
    }

    /// In no order.
    package var reservations: [Reservation]

    package init(reservations: [Reservation] = []) { self.reservations = reservations }

    /// Whether `identity` may use `name` so.
    package func allows(_ access: Access, _ name: String, by identity: Identity) -> Bool {
        if identity.user == 0 { return true }
        return switch NameScope(name) {
        case .process: true
        case .user(let owner): owner == identity.user
        case .root: false
        case .everyone: true
        }
    }

    /// Whether anybody at all may post `name`, so that nobody need be asked for.
    package func isOpen(_ access: Access, _ name: String) -> Bool {
        switch NameScope(name) {
        case .process: true
        case .user, .root: false
        case .everyone: true
        }
    }
}
