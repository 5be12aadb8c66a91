import Basics
import DBus
import FoundationEssentials
import HTTPClient
package import Identity
package import OpenIDConnect
import Synchronization

/// An organisation's provider that speaks OpenID Connect.
package final class OpenIDConnectProvider: OrganisationProvider {
    package struct Settings: Sendable {
        /// Requested at every sign-in.
        package var scopes: [String]
        /// Whether to request `offline_access`, so that the session outlives the provider's own.
        package var asksForOfflineAccess: Bool
        /// The claim that may hold the tenant's UUID.
        package var tenantClaim: String

        package init(
            scopes: [String] = ["openid", "profile", "email"],
            asksForOfflineAccess: Bool = false,
            tenantClaim: String = AccountMapping.usualTenantClaim
        ) {
            self.scopes = scopes
            self.asksForOfflineAccess = asksForOfflineAccess
            self.tenantClaim = tenantClaim
        }

        /// Always contains `openid`: without it the provider does not say who signs in.
        func scopes(with more: Set<String>) -> [String] {
            let wanted = ["openid"] + scopes + more.sorted() + (asksForOfflineAccess ? ["offline_access"] : [])
            var seen: Set<String> = []
            return wanted.filter { seen.insert($0).inserted }
        }
    }

    package let client: OpenIDConnectClient
    private let settings: Settings
    private let clock: OpenIDConnectClient.Clock
    let pending = Locked(PendingSignIns())

    /// - Parameter clock: The clock of `client`.
    package init(
        _ client: OpenIDConnectClient,
        settings: Settings = Settings(),
        clock: OpenIDConnectClient.Clock = .init()
    ) {
        self.client = client
        self.settings = settings
        self.clock = clock
    }

    private var issuer: Issuer { client.issuer }

    // MARK: Signing in

    package func begin(_ start: SignInStart) async throws(IdentityError) -> BegunSignIn {
        let handle = PendingSignIns.newHandle()
        guard pending.withLock({ $0.reserve(handle, at: clock.now()) }) else { throw .busy }
        do throws(IdentityError) {
            return switch start.method {
            case .browser: try await beginInBrowser(handle, start)
            case .deviceCode: try await beginByDeviceCode(handle, start)
            }
        } catch {
            remove(handle)
            throw error
        }
    }

    private func beginInBrowser(_ handle: String, _ start: SignInStart) async throws(IdentityError) -> BegunSignIn {
        guard let redirect = start.redirect, SignInStart.isLoopback(redirect) else {
            throw IdentityError(.providerMisconfigured, "the redirect has to be http://127.0.0.1:PORT/callback")
        }
        let (requestedAt, scopes) = (clock.date(), settings.scopes(with: start.scopes))
        let flow = try await client.beginSignIn(redirect: redirect)
        let address = try flow.address(scopes: scopes, loginHint: start.loginHint, claims: start.claims)
        let signIn = BrowserSignIn(flow: flow, requestedAt: requestedAt, scopes: Set(scopes), only: start.only)
        guard pending.withLock({ $0.put(.browser(signIn), handle) }) else { throw .cancelled }
        let prompt = BegunSignIn.Prompt.browser(address: address)
        return BegunSignIn(handle: handle, prompt: prompt, lifetime: AuthorizationCodeFlow.lifetime)
    }

    private func beginByDeviceCode(_ handle: String, _ start: SignInStart) async throws(IdentityError) -> BegunSignIn {
        let (codes, shown) = AsyncStream.makeStream(of: DeviceCode.self)
        let failure = Locked<IdentityError?>(nil)
        let scopes = settings.scopes(with: start.scopes)
        guard pending.withLock({ $0.put(.deviceCode(nil), handle) }) else { throw .cancelled }
        let task = Task {
            let outcome: PendingSignIns.Outcome
            do throws(IdentityError) {
                let signedIn = try await client.signInByDeviceCode(scopes: scopes, show: { shown.yield($0) }) {
                    [self] in pending.withLock { $0.polledAt(handle) }
                }
                outcome = .success(try await accept(signedIn, scopes: Set(scopes), only: start.only))
            } catch {
                failure.withLock { $0 = error }
                outcome = .failure(error)
            }
            let isKept = pending.withLock { $0.finish(handle, outcome) }
            shown.finish()
            guard isKept else { return discard(outcome) }
            await waitForCollection(of: handle)
            remove(handle)
        }
        guard pending.withLock({ $0.attach(task, to: handle) }) else {
            task.cancel()
            throw failure.withLock { $0 } ?? .cancelled
        }
        for await code in codes {
            let prompt = BegunSignIn.Prompt.deviceCode(
                code: code.userCode,
                address: code.address.text,
                completeAddress: code.completeAddress?.text
            )
            return BegunSignIn(handle: handle, prompt: prompt, lifetime: code.lifetime)
        }
        throw failure.withLock { $0 } ?? .cancelled
    }

    /// Waits until a caller has collected the outcome, or until no call has polled for ``DeviceGrant/patience``.
    private func waitForCollection(of handle: String) async {
        while let time = pending.withLock({ $0.polledAt(handle) }), clock.now() - time <= DeviceGrant.patience {
            guard (try? await clock.wait(DeviceGrant.patience)) != nil else { return }
        }
    }

    package func complete(_ handle: String, query: String) async throws(IdentityError) -> ProviderSignIn {
        guard let signIn = pending.withLock({ $0.take(handle) }) else { throw .unknownSignIn }
        let outcome: PendingSignIns.Outcome
        do throws(IdentityError) {
            let signedIn = try await client.completeSignIn(signIn.flow, query: query, requestedAt: signIn.requestedAt)
            outcome = .success(try await accept(signedIn, scopes: signIn.scopes, only: signIn.only))
        } catch {
            outcome = .failure(error)
        }
        // A caller that cancelled during this call still gets the outcome, and ends the session itself. The outcome is
        // discarded only if the entry is gone, which happens when all sign-ins are cancelled.
        let isAwaited = pending.withLock { $0.remove(handle) } != nil
        guard !isAwaited else { return try outcome.get() }
        discard(outcome)
        throw .cancelled
    }

    package func poll(_ handle: String) async throws(IdentityError) -> ProviderSignIn? {
        switch pending.withLock({ $0.poll(handle, at: clock.now()) }) {
        case .unknown: throw .unknownSignIn
        case .pending: return nil
        case .finished(let outcome): return try outcome.get()
        }
    }

    package func cancel(_ handle: String) async {
        guard !pending.withLock({ $0.isCompleting(handle) }) else { return }
        remove(handle)
    }

    private func remove(_ handle: String) {
        guard let (state, task) = pending.withLock({ $0.remove(handle) }) else { return }
        task?.cancel()
        if case .deviceCode(let outcome?) = state { discard(outcome) }
    }

    /// Ends all pending sign-ins, because their caller has disconnected.
    package func cancelAll() { for handle in pending.withLock({ $0.handles }) { remove(handle) } }

    // MARK: Result of a sign-in

    private func accept(
        _ signedIn: OpenIDConnectClient.SignedIn,
        scopes: Set<String>,
        only: ProviderRecord.Person?
    ) async throws(IdentityError) -> ProviderSignIn {
        let (identity, tokens, now) = (signedIn.identity, signedIn.tokens, clock.date())
        let granted = tokens.scopes ?? scopes
        let kept = KeptSignIn(identity, tokens, scopes: granted, now: now)
        do throws(IdentityError) {
            let record = try kept.record(of: issuer)
            guard only == nil || only == record.person else { throw .anotherPerson(issuer) }
            let claims = try await claims(of: identity, tokens.accessToken)
            return ProviderSignIn(
                account: AccountMapping.account(
                    issuer: issuer,
                    subject: identity.subject,
                    identity: identity.claims,
                    names: claims,
                    tenantClaim: settings.tenantClaim
                ),
                record: record,
                token: AccessToken(tokens, scopes: granted, now: now, kept),
                // Claims of the userinfo endpoint tell nothing about this sign-in.
                groups: identity.isSigned ? PersonGroups(claims: identity.claims) : .unknown(.elsewhere)
            )
        } catch {
            client.discard(kept.issued(at: now))
            throw error
        }
    }

    /// The provider's claims about the person. Many providers put few claims into the ID token, and return the rest
    /// from the userinfo endpoint (OpenID Connect Core, section 5.4).
    private func claims(of identity: IDToken, _ token: Secret) async throws(IdentityError) -> JSONValue {
        guard identity.isSigned, AccountMapping.username(identity.claims) == nil,
            case .object(let signed) = identity.claims
        else { return identity.claims }
        do throws(IdentityError) {
            // Without a userinfo endpoint, the ID token has all claims.
            guard try await client.provider().metadata.userInfoEndpoint != nil else { return identity.claims }
            let more = try await client.userInfo(token.text, of: identity.subject)
            return .object((more.claims.object ?? [:]).merging(signed) { $1 })
        } catch {
            // A response about another person is an error. After any other failure the account has no name from this
            // endpoint.
            guard error != .anotherSignIn else { throw error }
            return identity.claims
        }
    }

    /// Revokes the tokens of a sign-in that no caller collects.
    private func discard(_ outcome: PendingSignIns.Outcome) {
        guard case .success(let signIn) = outcome, let kept = KeptSignIn(signIn.record, of: issuer) else { return }
        client.discard(kept.issued(at: clock.date()))
    }

    // MARK: Staying signed in

    package func renew(_ record: ProviderRecord, scopes: Set<String>, mayBeUsed: Bool) async -> RenewalOutcome {
        guard var kept = KeptSignIn(record, of: issuer) else {
            // The record is damaged or belongs to another provider: only a new sign-in helps.
            return .reauthenticationNeeded
        }
        guard let token = kept.refreshToken else {
            return .misconfigured(
                IdentityError(
                    .providerMisconfigured,
                    "\(issuer) gives this device no refresh token; allow the client refresh tokens, or set oidcOfflineAccess to always"
                )
            )
        }
        let outcome = await client.refresh(
            Secret(token),
            scopes: scopes.sorted(),
            of: kept.identity(of: issuer),
            mayBeUsed: mayBeUsed
        )
        switch outcome {
        case .renewed(let tokens):
            let now = clock.date()
            kept.renew(tokens, isCheck: scopes.isEmpty, now: now)
            let granted = tokens.scopes ?? (scopes.isEmpty ? kept.scopes : scopes)
            do throws(IdentityError) {
                let token = AccessToken(tokens, scopes: granted, now: now, kept)
                return .renewed(token, try kept.record(of: issuer))
            } catch {
                // The old token is used up, and the new one is too large to keep. The sign-in that must follow reports
                // why.
                client.discard(IssuedTokens(tokens, withSession: false))
                return .reauthenticationNeeded
            }
        case .sessionOver: return .sessionOver
        case .reauthenticationNeeded: return .reauthenticationNeeded
        case .misconfigured(let error): return .misconfigured(error)
        case .scopeRefused: return .scopeRefused
        case .unavailable(let error, let mayBeUsed): return .unavailable(error, mayBeUsed: mayBeUsed)
        }
    }

    // MARK: End of the session

    package func end(_ record: ProviderRecord, keepsSession: Bool) async throws(IdentityError) {
        guard let kept = KeptSignIn(record, of: issuer) else {
            throw IdentityError(.providerMisconfigured, "the record is not of \(issuer); its tokens cannot be revoked")
        }
        try await client.end(kept.issued(at: clock.date(), withSession: !keepsSession))
    }
}

extension IdentityError {
    static let unknownSignIn = IdentityError(.loginExpired, "this sign-in is over, or was never begun; begin again")

    static func anotherPerson(_ issuer: Issuer) -> IdentityError {
        IdentityError(
            .authenticationFailed,
            "the person who signed in with \(issuer) is not the person who is signed in on this device (current_account_mismatch); the same "
                + "person has to sign in, or sign out first"
        )
    }
}

extension AccessToken {
    fileprivate init(_ tokens: TokenAnswer, scopes: Set<String>, now: Date, _ kept: KeptSignIn) {
        self.init(
            value: tokens.accessToken.text,
            scopes: scopes,
            expiresAt: now + TimeInterval(tokens.lifetime / .seconds(1)),
            identity: kept.idToken.map { IdentityToken(text: $0, granted: kept.scopes) }
        )
    }
}
