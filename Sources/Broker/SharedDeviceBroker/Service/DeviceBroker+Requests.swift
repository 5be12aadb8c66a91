import Foundation
package import SharedDevice

/// What apps ask for. `app` is the caller as the broker has identified it.
extension DeviceBroker {
    /// The result of a sign-in or a token request.
    package struct Grant: Sendable {
        package let account: Account
        package let epoch: UInt64
        package let token: AccessToken
    }

    /// Tells an app who is signed in and what it owes. Before the app hears of the account, the disk has it that the app may hold its data.
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
            // The state may have changed while the disk was busy: the app gets the new one.
            guard state.epoch == asked.epoch, ledger.owed(by: app) == owed else { continue }
            let answer = SessionAnswer(session: asked.session, owed: owed, isStrict: policy.isStrict)
            if owed.isEmpty { standingAnswers.keep(answer, for: app) }
            return answer
        }
    }

    /// What an app that may no longer take part still has to clean up; `nil` if it owes nothing. The answer names no current account.
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
    ///   - isAwaited: whether the app still waits for the answer. A person whose app has ended may have left the device, so nobody is signed
    ///     in then. Called on the broker's queue.
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

    /// Cancels a sign-in. If it has signed somebody in already, signs that account out again.
    ///
    /// - Throws: ``StoreError``. The account then stays signed in.
    package func cancelSignIn(_ number: String) throws {
        cancelledSignIns = cancelledSignIns.suffix(63) + [number]
        guard let lastSignIn, lastSignIn.request == number, state.account != nil, state.epoch == lastSignIn.epoch else {
            return
        }
        try apply(.signOut(accountIdentifier: nil), cause: "the sign-in was cancelled")
    }

    /// A token for the current account.
    ///
    /// - Parameter session: the session that the app takes for the current one; `nil` if it does not say.
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
    ///   - identifier: the account; `nil` means whoever is signed in.
    ///   - session: the session to end; `nil` means the current one. A late request that names its session cannot end a later one.
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

    /// Records that the app may hold data of the session. Returns when the record is on the disk.
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
        // The note that an app was told is for people only: what it owes is on the disk already.
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

    /// The refusal for a session that ended during the request.
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
