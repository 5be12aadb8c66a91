package import SharedDevice

/// What may change the device's state.
package enum DeviceEvent: Sendable {
    /// A person has proved to be this account.
    case signIn(Account)
    /// An app signs the account out of the whole device; `nil` means whoever is signed in.
    case signOut(accountIdentifier: String?)
    /// The administration has removed this account.
    case accountRemoved(identifier: String)
    /// The managed configuration now says this.
    case modeChanged(ManagedMode)
    /// The rules of who may sign in have changed.
    case rulesChanged
    /// The device has left its organisation.
    case left
}

/// The rules of the one signed-in account. Pure: it holds nothing, and the caller commits what it decides.
package struct DeviceStateMachine: Sendable {
    package init() {}

    /// Checks what can be checked before the person is known.
    ///
    /// - Throws: ``DeviceRefusal``.
    package func checkSignIn(in state: DeviceState, rules: DeviceRules) throws(DeviceRefusal) {
        guard state.mode == .shared else { throw .notSharedDevice }
        try rules.check()
        // This holds for the same account too: a second session would hide from every app that the first one has ended.
        guard state.account == nil else { throw .accountAlreadySignedIn }
    }

    /// The state that `event` leads to from `state`.
    ///
    /// - Parameter rules: those in force from this event on.
    /// - Returns: The new state, with the next epoch; `nil` if the event changes nothing, so that nothing is committed or
    ///   announced.
    /// - Throws: `DeviceRefusal` if the rules forbid the event; the state stays as it is.
    package func decide(
        _ event: DeviceEvent,
        in state: DeviceState,
        rules: DeviceRules = DeviceRules()
    ) throws(DeviceRefusal) -> DeviceState? {
        switch event {
        case .signIn(let account):
            try checkSignIn(in: state, rules: rules)
            try rules.check(tenant: account.tenantIdentifier)
            return state.next(mode: state.mode, account: account)

        case .signOut(let identifier):
            guard let current = state.account else { throw .noCurrentAccount }
            if let identifier, !current.hasIdentifier(identifier) { throw .currentAccountMismatch }
            return state.next(mode: state.mode, account: nil)

        case .accountRemoved(let identifier):
            guard let current = state.account, current.hasIdentifier(identifier) else { return nil }
            return state.next(mode: state.mode, account: nil)

        case .modeChanged(let mode):
            guard mode != state.mode else { return nil }
            return state.next(mode: mode, account: mode == .shared ? state.account : nil)

        case .rulesChanged:
            guard let current = state.account else { return nil }
            do throws(DeviceRefusal) {
                try rules.check(tenant: current.tenantIdentifier)
                return nil
            } catch {
                return state.next(mode: state.mode, account: nil)
            }

        case .left:
            guard state.account != nil else { return nil }
            return state.next(mode: state.mode, account: nil)
        }
    }
}

/// How this device is managed, by its configuration. The broker always knows; a client may also find it unknown.
package enum ManagedMode: String, Sendable, Codable {
    /// Many people, one at a time: at most one account is signed in, for every app.
    case shared
    /// One person's device: the broker signs nobody in.
    case personal
}

/// What the broker holds for the whole device.
///
/// A personal device has no account; `DeviceStateMachine` and the store's schema both enforce it.
package struct DeviceState: Sendable {
    /// How the device is managed.
    package let mode: ManagedMode
    /// Who is signed in, if anyone.
    package let account: Account?
    /// Grows by one with each change of account or mode, so two states of the same epoch are equal. The store chooses the
    /// first epoch.
    package let epoch: UInt64

    /// A new device: personal, nobody signed in, epoch 0.
    package static let initial = DeviceState(mode: .personal, account: nil, epoch: 0)

    package init(mode: ManagedMode, account: Account?, epoch: UInt64) {
        self.mode = mode
        self.account = account
        self.epoch = epoch
    }

    /// The state that follows this one.
    package func next(mode: ManagedMode, account: Account?) -> DeviceState {
        DeviceState(mode: mode, account: account, epoch: epoch + 1)
    }
}

/// Who may sign in at all, by the administrator's configuration and the device's enrolment.
package struct DeviceRules: Sendable, Equatable {
    /// Whether the device has to be joined before anybody signs in.
    package var requiresJoin: Bool
    /// Whether it is joined.
    package var isJoined: Bool
    /// The tenant whose users may sign in; `nil` means any tenant. Its case does not matter.
    package var tenantIdentifier: String?

    package init(requiresJoin: Bool = false, isJoined: Bool = false, tenantIdentifier: String? = nil) {
        self.requiresJoin = requiresJoin
        self.isJoined = isJoined
        self.tenantIdentifier = tenantIdentifier
    }

    /// Whether anybody may sign in.
    ///
    /// - Throws: ``DeviceRefusal``.
    package func check() throws(DeviceRefusal) {
        if requiresJoin, !isJoined { throw .deviceNotJoined }
    }

    /// Whether users of this tenant may sign in.
    ///
    /// - Throws: ``DeviceRefusal``.
    package func check(tenant: String) throws(DeviceRefusal) {
        try check()
        if let tenantIdentifier, tenantIdentifier.lowercased() != tenant.lowercased() { throw .tenantMismatch }
    }
}

extension Account {
    /// Whether `identifier` names this account. As in MSAL its case does not matter: one directory may write its ids in
    /// capitals or in small letters.
    package func hasIdentifier(_ identifier: String) -> Bool {
        self.identifier.lowercased() == identifier.lowercased()
    }
}
