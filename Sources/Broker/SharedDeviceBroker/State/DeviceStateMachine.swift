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
    /// The rules of who may sign in are others.
    case rulesChanged
    /// The device is none of its organisation's any more.
    case left
}

/// The rules of the one signed-in account. Pure: it holds nothing, and the caller commits what it decides.
package struct DeviceStateMachine: Sendable {
    package init() {}

    /// Whether anybody could sign in, as far as that can be told before it is known who it is.
    ///
    /// - Throws: ``DeviceRefusal``.
    package func checkSignIn(in state: DeviceState, rules: DeviceRules) throws(DeviceRefusal) {
        guard state.mode == .shared else { throw .notSharedDevice }
        try rules.check()
        // For the same account too: a second session would hide from every app that the first has ended.
        guard state.account == nil else { throw .accountAlreadySignedIn }
    }

    /// The state that `event` leads to from `state`.
    ///
    /// - Parameter rules: those in force from this event on.
    /// - Returns: The new state, its epoch one higher; `nil` where the event changes nothing, and nothing is to be
    ///   committed or announced.
    /// - Throws: `DeviceRefusal` where the event is against the rules; the state stays as it is.
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
