package import DeviceConfiguration
package import FoundationEssentials
package import SharedDevice

/// An instant by both of the system's clocks.
package struct Moment: Sendable, Equatable {
    /// For people, for the log, and for what the local day decides. It jumps when somebody sets it.
    package var wall: Date
    /// Since the system's start, sleep included. It never jumps: every wait is measured by it.
    package var uptime: Duration
    /// How much of that the machine has slept.
    package var asleep: Duration

    package init(wall: Date, uptime: Duration, asleep: Duration = .zero) {
        self.wall = wall
        self.uptime = uptime
        self.asleep = asleep
    }
}

/// What the broker holds for the whole device. A personal device has no account; the functions here and the store's schema both see to it.
package struct DeviceState: Sendable, Equatable {
    /// How the device is managed.
    package let mode: ManagedMode
    /// Who is signed in, if anyone.
    package let account: Account?
    /// Grows by one with each change of account or mode, so that two states with the same number are equal. The number of a sign-in's state
    /// is the number of the session. The store chooses the first one.
    package let epoch: UInt64

    /// A new device: personal, nobody signed in, epoch 0.
    package static let initial = DeviceState(mode: .personal, account: nil, epoch: 0)

    /// The state that follows this one.
    package func next(mode: ManagedMode, account: Account?) -> DeviceState {
        DeviceState(mode: mode, account: account, epoch: epoch + 1)
    }

    /// Checks what can be checked before the person is known.
    ///
    /// - Throws: ``Refusal``.
    package func checkSignIn(_ rules: SignInRules) throws(Refusal) {
        guard mode == .shared else { throw .notSharedDevice }
        try rules.check()
        // This holds for the same account too: a second session would hide from every app that the first one has ended.
        guard account == nil else { throw .accountAlreadySignedIn }
    }

    /// The state after this account's sign-in.
    ///
    /// - Throws: ``Refusal``; the state stays as it is.
    package func signingIn(_ account: Account, _ rules: SignInRules) throws(Refusal) -> DeviceState {
        try checkSignIn(rules)
        try rules.check(tenant: account.tenantIdentifier)
        return next(mode: mode, account: account)
    }

    /// The state after a sign-out.
    ///
    /// - Parameters:
    ///   - identifier: the account to sign out; `nil` means whoever is signed in.
    ///   - session: the session to end; `nil` means the current one. A late request that names its session cannot end a later one.
    /// - Throws: ``Refusal``; the state stays as it is.
    package func signingOut(_ identifier: String?, session: UInt64? = nil) throws(Refusal) -> DeviceState {
        guard let account else { throw .noCurrentAccount }
        guard session == nil || session == epoch, identifier.map(account.hasIdentifier) ?? true else {
            throw .currentAccountMismatch
        }
        return next(mode: mode, account: nil)
    }

    /// The state under new rules; `nil` if they change nothing. An account that they do not admit is signed out.
    package func under(_ mode: ManagedMode, _ rules: SignInRules) -> DeviceState? {
        let isAdmitted = account.map { (try? rules.check(tenant: $0.tenantIdentifier)) != nil } ?? true
        guard mode != self.mode || !isAdmitted else { return nil }
        return next(mode: mode, account: mode == .shared && isAdmitted ? account : nil)
    }
}

/// Who may sign in at all, by the administrator's configuration and the device's membership in an organisation.
package struct SignInRules: Sendable, Equatable {
    /// Whether the device has to be joined before anybody signs in.
    package var requiresJoin = false
    /// Whether it is joined.
    package var isJoined = false
    /// The tenant whose users may sign in; `nil` means any tenant. Its case does not matter.
    package var tenantIdentifier: String?

    /// Whether anybody may sign in.
    ///
    /// - Throws: ``Refusal``.
    package func check() throws(Refusal) { if requiresJoin, !isJoined { throw .deviceNotJoined } }

    /// Whether users of this tenant may sign in.
    ///
    /// - Throws: ``Refusal``.
    package func check(tenant: String) throws(Refusal) {
        try check()
        if let tenantIdentifier, tenantIdentifier.lowercased() != tenant.lowercased() { throw .tenantMismatch }
    }
}

/// The device's membership in an organisation. One of its administrators has joined the device; only its users sign in from then on.
package struct Membership: Sendable, Equatable {
    /// The organisation's name, where the managed configuration had one.
    package var organization: String?
    /// The organisation's directory, by the account of the administrator.
    package var tenantIdentifier: String
    package var joinedAt: Date
}

extension Account {
    /// Whether `identifier` names this account. As in MSAL its case does not matter: one directory may write its ids in
    /// capitals or in small letters.
    package func hasIdentifier(_ identifier: String) -> Bool { self.identifier.lowercased() == identifier.lowercased() }
}
