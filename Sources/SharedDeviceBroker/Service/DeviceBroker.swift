import Foundation
package import SharedDevice

/// Holds the device's one account. Every change goes through ``apply(_:)``: commit, then bump the epoch, then announce
/// (architecture, D9), so that whoever is told to ask gets the new answer.
package actor DeviceBroker {
    /// What went wrong with an announcement; the state is committed all the same.
    package typealias Announcement = @Sendable (DeviceState) -> Void

    private let store: AccountStore
    private let provider: any IdentityProvider
    private let announce: Announcement
    private let machine = DeviceStateMachine()
    private let executor = QueueExecutor("org.notifycenter.SharedDeviceBroker")
    private var state: DeviceState
    private var tokens: TokenVault
    /// What the provider gave at sign-in; gone after a restart, when the account alone has to do.
    private var identity: AuthenticatedIdentity?

    /// The actor runs here: its steps wait for the disk.
    package nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// - Parameter announce: tells all apps to ask. Called on the broker's queue after each commit, before the next one can
    ///   begin; it must not wait for the broker.
    /// - Throws: ``StoreError``.
    package init(
        store: AccountStore,
        provider: any IdentityProvider,
        announce: @escaping Announcement
    ) throws(StoreError) {
        self.store = store
        self.provider = provider
        self.announce = announce
        state = try store.state()
        tokens = TokenVault(epoch: state.epoch)
    }

    /// The state that was committed last.
    package var current: DeviceState { state }

    /// Tells all apps to ask, though nothing changed: after a start or a loss of the bus they may have missed something.
    package func announceAgain() { announce(state) }

    /// The one way to another state: decides, commits, drops what belonged to the old epoch, announces. It has no point at
    /// which another request could come in between.
    ///
    /// - Throws: ``DeviceRefusal``, ``StoreError``; nothing has changed then.
    @discardableResult
    package func apply(_ event: DeviceEvent) throws -> DeviceState {
        guard let next = try machine.decide(event, in: state) else { return state }
        try store.commit(next)
        let left = identity
        state = next
        tokens.enter(epoch: next.epoch)
        identity = nil
        announce(next)
        if let left {
            // The device is signed out whatever the provider makes of it.
            Task { [provider] in try? await provider.endSession(for: left) }
        }
        return next
    }

    // MARK: Requests of apps

    /// What a sign-in or a token request brings.
    package struct Grant: Sendable {
        package let account: Account
        package let epoch: UInt64
        package let token: AccessToken
    }

    /// Signs somebody in for the whole device.
    ///
    /// - Throws: ``DeviceRefusal``, ``IdentityError``, ``StoreError``.
    package func signIn(_ request: SignInRequest, scopes: Set<String>) async throws -> Grant {
        // Before the password is looked at: a refusal must not tell whether it was right.
        _ = try machine.decide(.signIn(Account(identifier: "", username: request.username)), in: state)
        let identity = try await provider.authenticate(request)
        let token = try await provider.issueToken(for: identity, scopes: scopes)
        // Somebody else may have signed in meanwhile, or the mode may have changed: this decides again.
        let next = try apply(.signIn(identity.account))
        self.identity = identity
        _ = tokens.store(token, for: identity.account, scopes: scopes, epoch: next.epoch, at: Date())
        return Grant(account: identity.account, epoch: next.epoch, token: token)
    }

    /// A token for the current account.
    ///
    /// - Throws: ``DeviceRefusal`` where the account is not the current one, also when it ceased to be while the provider was
    ///   asked; ``IdentityError``.
    package func acquireToken(for identifier: String, scopes: Set<String>, refresh: Bool) async throws -> Grant {
        let account = try currentAccount(identifier)
        let epoch = state.epoch
        if !refresh, let token = tokens.token(for: account, scopes: scopes, epoch: epoch, at: Date()) {
            return Grant(account: account, epoch: epoch, token: token)
        }
        let token = try await provider.issueToken(
            for: identity ?? AuthenticatedIdentity(account: account),
            scopes: scopes
        )
        guard tokens.store(token, for: account, scopes: scopes, epoch: epoch, at: Date()) else {
            // The session of the request is over, even where the same person has signed in again (edge case E14).
            _ = try currentAccount(identifier)
            throw DeviceRefusal.currentAccountMismatch
        }
        return Grant(account: account, epoch: epoch, token: token)
    }

    private func currentAccount(_ identifier: String) throws(DeviceRefusal) -> Account {
        guard state.mode == .shared else { throw .notSharedDevice }
        guard let account = state.account else { throw .noCurrentAccount }
        guard account.hasIdentifier(identifier) else { throw .currentAccountMismatch }
        return account
    }
}
