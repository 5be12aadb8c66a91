package import DeviceConfiguration
package import FoundationEssentials
package import Identity
package import SharedDevice

/// A point in time by both of the system's clocks.
package struct Moment: Sendable, Equatable {
    /// For people, for the log and for local times. It jumps when the clock is set.
    package var wall: Date
    /// The time since the system's start, including sleep. It never jumps, so every wait is measured by it.
    package var uptime: Duration
    /// How much of ``uptime`` the machine has slept.
    package var asleep: Duration

    package init(wall: Date, uptime: Duration, asleep: Duration = .zero) {
        (self.wall, self.uptime, self.asleep) = (wall, uptime, asleep)
    }
}

/// The broker's state of the whole device. A personal device has no account: the functions here and the schema of the
/// store both ensure that.
package struct DeviceState: Sendable, Equatable {
    /// How the device is managed.
    package let mode: ManagedMode
    /// The signed-in account, if any.
    package let account: Account?
    /// The account's groups at the person's latest authentication; empty without an account.
    package let groups: Set<String>
    /// Grows by one with each change of account or mode. The number of a sign-in's state is the number of the session.
    /// The store chooses the first number.
    package let epoch: UInt64

    package static let initial = DeviceState(mode: .personal, account: nil, epoch: 0)

    package init(mode: ManagedMode, account: Account?, groups: Set<String> = [], epoch: UInt64) {
        (self.mode, self.account, self.epoch) = (mode, account, epoch)
        self.groups = account == nil ? [] : groups
    }

    package func next(mode: ManagedMode, account: Account?, groups: Set<String> = []) -> DeviceState {
        DeviceState(mode: mode, account: account, groups: groups, epoch: epoch + 1)
    }

    package func authenticated(_ groups: Set<String>) -> DeviceState {
        DeviceState(mode: mode, account: account, groups: groups, epoch: epoch)
    }

    package func checkSignIn(_ rules: SignInRules) throws(Refusal) {
        guard mode == .shared else { throw .notSharedDevice }
        try rules.check()
        // This also holds for the same account: a second session would hide the end of the first one from every app.
        guard account == nil else { throw .accountAlreadySignedIn }
    }

    package func signingIn(
        _ account: Account,
        _ rules: SignInRules,
        _ groups: PersonGroups = .none
    ) throws(Refusal) -> DeviceState {
        try checkSignIn(rules)
        try rules.check(account, groups)
        return next(mode: mode, account: account, groups: groups.names)
    }

    /// - Parameters:
    ///   - identifier: The account to sign out; `nil` means any account.
    ///   - session: The session to end; `nil` means the current one. A late request cannot end a later session.
    package func signingOut(_ identifier: String?, session: UInt64? = nil) throws(Refusal) -> DeviceState {
        guard let account else { throw .noCurrentAccount }
        guard session == nil || session == epoch, identifier.map(account.hasIdentifier) ?? true else {
            throw .currentAccountMismatch
        }
        return next(mode: mode, account: nil)
    }

    /// The state under new rules; `nil` if they change nothing. An account that they do not admit is signed out.
    package func under(_ mode: ManagedMode, _ rules: SignInRules) -> DeviceState? {
        let isAdmitted = refusal(rules) == nil
        guard mode != self.mode || !isAdmitted else { return nil }
        return next(mode: mode, account: mode == .shared && isAdmitted ? account : nil, groups: groups)
    }

    /// Why the rules do not admit the account; `nil` if they do, or if there is none.
    package func refusal(_ rules: SignInRules) -> Refusal? {
        guard let account else { return nil }
        do throws(Refusal) {
            try rules.check(account, .known(groups))
            return nil
        } catch {
            return error
        }
    }
}

/// The rules for sign-ins, from the administrator's configuration and the device's membership in an organisation.
package struct SignInRules: Sendable, Equatable {
    /// Whether the device has to be joined before any sign-in.
    package var requiresJoin = false
    package var isJoined = false
    /// The tenant whose users may sign in; `nil` means any tenant. Its case does not matter.
    package var tenantIdentifier: String?
    /// The people who may sign in; `nil` means all.
    package var allowedUsers: AllowedUsers?

    package func check() throws(Refusal) { if requiresJoin, !isJoined { throw .deviceNotJoined } }

    package func check(_ account: Account, _ groups: PersonGroups) throws(Refusal) {
        try check()
        if let tenantIdentifier, tenantIdentifier.lowercased() != account.tenantIdentifier.lowercased() {
            throw .tenantMismatch
        }
        if allowedUsers?.admits(account, groups.names) == false { throw .userNotAllowed(groups) }
    }
}

/// The device's membership in an organisation, since one of its administrators joined the device: only its users sign
/// in.
package struct Membership: Sendable, Equatable {
    /// The organisation's name, if the managed configuration had one.
    package var organization: String?
    /// The organisation's directory, taken from the administrator's account.
    package var tenantIdentifier: String
    package var joinedAt: Date

    package init(organization: String? = nil, tenantIdentifier: String, joinedAt: Date) {
        (self.organization, self.tenantIdentifier, self.joinedAt) = (organization, tenantIdentifier, joinedAt)
    }
}

extension AllowedUsers {
    /// Whether the person is listed. The origin of the account decides how its name is compared: Linux users differ by
    /// case, users of a directory or a provider do not. Groups are compared byte by byte.
    func admits(_ account: Account, _ names: Set<String>) -> Bool {
        let isLogin = SeatLogin.user(of: account) != nil
        let key = usernameKey(account.username)
        if users.contains(where: { isLogin ? isSame($0, account.username) : isSame(usernameKey($0), key) }) {
            return true
        }
        // A set takes names for equal that differ in the form of a letter with an accent.
        return groups.contains { group in names.firstIndex(of: group).map { isSame(names[$0], group) } ?? false }
    }

    private func isSame(_ left: String, _ right: String) -> Bool { left.utf8.elementsEqual(right.utf8) }
}

extension Account {
    /// Whether `identifier` names this account, whose case does not matter, as in MSAL.
    package func hasIdentifier(_ identifier: String) -> Bool { self.identifier.lowercased() == identifier.lowercased() }
}
