import Foundation
package import SharedDevice

/// What apps ask for. `app` is who asks, by the broker's own finding.
extension DeviceBroker {
    /// What a sign-in or a token request brings.
    package struct Grant: Sendable {
        package let account: Account
        package let epoch: UInt64
        package let token: AccessToken
    }

    /// Who is signed in, and what the app owes. That the app may hold the account's data is on the disk before it hears of it.
    ///
    /// - Throws: ``StoreError``.
    package func session(for app: String) async throws -> SessionAnswer {
        let now = surroundings.now()
        while true {
            let asked = state
            let owed = ledger.owed(by: app)
            if !owed.isEmpty { tell(app, owed, at: now) }
            let isWithheld = policy.isStrict && !owed.isEmpty && asked.account != nil
            if asked.account == nil || isWithheld {
                let session = DeviceSession(account: nil, epoch: asked.epoch)
                return SessionAnswer(
                    session: session,
                    owed: owed,
                    isWithheld: isWithheld,
                    isStrict: policy.isStrict
                )
            }
            try await hold(asked.epoch, by: app)
            // Somebody may have signed out while the disk was busy: that is then the answer.
            guard state.epoch == asked.epoch, ledger.owed(by: app) == owed else { continue }
            let answer = SessionAnswer(session: asked.session, owed: owed, isStrict: policy.isStrict)
            if owed.isEmpty { standingAnswers.keep(answer, for: app) }
            return answer
        }
    }

    /// What an app that may not take part any more has still to clean up; `nil` where that is nothing. It is given no account.
    package func debt(of app: String) -> SessionAnswer? {
        let owed = ledger.owed(by: app)
        guard !owed.isEmpty else { return nil }
        tell(app, owed, at: surroundings.now())
        return SessionAnswer(
            session: DeviceSession(account: nil, epoch: state.epoch),
            owed: owed,
            isWithheld: state.account != nil,
            isStrict: policy.isStrict
        )
    }

    /// Signs somebody in for the whole device, when the policy lets anybody in.
    ///
    /// - Parameters:
    ///   - patience: how long the request waits for open cleanup rounds.
    ///   - number: what ``cancelSignIn(_:)`` names it by.
    ///   - isAwaited: whether the app is still there to hear of it. Somebody whose app has ended meanwhile may have left the device, which
    ///     is then to sign nobody in. Called on the broker's queue.
    /// - Throws: ``DeviceRefusal``, ``IdentityError``, ``StoreError``.
    package func signIn(
        _ request: SignInRequest,
        scopes: Set<String>,
        by app: String,
        patience: Duration = .zero,
        request number: String? = nil,
        isAwaited: @Sendable () -> Bool = { true }
    ) async throws -> Grant {
        // Before the password is looked at: a refusal must not tell whether it was right.
        try machine.checkSignIn(in: state, rules: rules)
        try await waitForCleanups(until: .now + patience)
        let identity = try await provider.authenticate(request)
        let token = try await provider.issueToken(for: identity, scopes: scopes)
        // Somebody else may have signed in and out meanwhile, or the mode may have changed: this decides again.
        try checkCleanups(of: app)
        guard isAwaited(), !cancelledSignIns.contains(where: { $0 == number }) else {
            throw DeviceRefusal.requestAbandoned
        }
        let next = try apply(.signIn(identity.account), cause: app, holder: app)
        self.identity = identity
        lastSignIn = number.map { ($0, next.epoch) }
        _ = tokens.store(token, for: identity.account, scopes: scopes, epoch: next.epoch, at: Date())
        return Grant(account: identity.account, epoch: next.epoch, token: token)
    }

    /// Nobody waits for this sign-in any more: it signs nobody in, and out again whom it has signed in.
    ///
    /// - Throws: ``StoreError``; who was signed in stays so then.
    package func cancelSignIn(_ number: String) throws {
        cancelledSignIns = cancelledSignIns.suffix(63) + [number]
        guard let lastSignIn, lastSignIn.request == number, state.account != nil, state.epoch == lastSignIn.epoch else {
            return
        }
        try apply(.signOut(accountIdentifier: nil), cause: "the sign-in was cancelled")
    }

    /// A token for the current account.
    ///
    /// - Parameter session: the session that the app takes for the current one; `nil` where it does not say.
    /// - Throws: ``DeviceRefusal`` where the account is not the current one, also when it ceased to be while the provider was
    ///   asked, or where the app has to clean up first; ``IdentityError``, ``StoreError``.
    package func acquireToken(
        for identifier: String,
        scopes: Set<String>,
        refresh: Bool,
        by app: String,
        session: UInt64? = nil
    ) async throws -> Grant {
        let account = try currentAccount(identifier, session)
        let epoch = state.epoch
        if policy.isStrict, !ledger.owed(by: app).isEmpty { throw DeviceRefusal.cleanupRequired }
        let token: AccessToken
        if !refresh, let kept = tokens.token(for: account, scopes: scopes, epoch: epoch, at: Date()) {
            token = kept
        } else {
            token = try await provider.issueToken(
                for: identity ?? AuthenticatedIdentity(account: account),
                scopes: scopes
            )
            guard tokens.store(token, for: account, scopes: scopes, epoch: epoch, at: Date()) else {
                // The session of the request is over, even where the same person has signed in again (edge case E14).
                throw sessionIsOver(identifier)
            }
        }
        try await hold(epoch, by: app)
        guard state.epoch == epoch else { throw sessionIsOver(identifier) }
        return Grant(account: account, epoch: epoch, token: token)
    }

    /// Signs the account out of the whole device, and opens the round of its cleanup.
    ///
    /// - Parameters:
    ///   - identifier: the account; `nil` for whoever is signed in.
    ///   - session: the session that is meant; a request that comes late must not end a later one. `nil` for the current one.
    /// - Returns: the epoch of the session that ended.
    /// - Throws: ``DeviceRefusal``, ``StoreError``; nothing has changed then.
    package func signOut(
        _ identifier: String?,
        session: UInt64? = nil,
        cause: String
    ) throws -> (state: DeviceState, session: UInt64) {
        let current = state.epoch
        if state.account != nil, let session, session != current { throw DeviceRefusal.currentAccountMismatch }
        return (try apply(.signOut(accountIdentifier: identifier), cause: cause), current)
    }

    /// Takes down that the app may hold data of the session; returns when that is on the disk.
    private func hold(_ epoch: UInt64, by app: String) async throws {
        var ledger = ledger
        if ledger.hold(epoch, by: app) {
            change([AuditEntry(.held, at: surroundings.now(), session: epoch, app: app)]) { $0 = ledger }
        }
        try await written()
    }

    private func tell(_ app: String, _ owed: [OwedSession], at now: Date) {
        var ledger = ledger
        guard ledger.tell(app, at: now) else { return }
        change(owed.map { AuditEntry(.told, at: now, session: $0.epoch, app: app) }) { $0 = ledger }
        // That an app was told is for people to read; what it owes is on the disk already.
        writeSoon()
    }

    private func currentAccount(_ identifier: String, _ session: UInt64? = nil) throws(DeviceRefusal) -> Account {
        guard state.mode == .shared else { throw .notSharedDevice }
        guard let account = state.account else { throw .noCurrentAccount }
        guard account.hasIdentifier(identifier), session == nil || session == state.epoch else {
            throw .currentAccountMismatch
        }
        return account
    }

    /// What to say of a session that ended while it was asked for.
    private func sessionIsOver(_ identifier: String) -> DeviceRefusal {
        do throws(DeviceRefusal) {
            _ = try currentAccount(identifier)
            return .currentAccountMismatch
        } catch {
            return error
        }
    }
}

extension DeviceState {
    /// What apps are told of it.
    var session: DeviceSession { DeviceSession(account: account, epoch: epoch) }
}
