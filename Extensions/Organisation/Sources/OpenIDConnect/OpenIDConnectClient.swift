import Basics
package import Cryptography
import DBus
package import FoundationEssentials
package import HTTPClient
package import Identity
import Synchronization

/// Performs the effects of this module's state machines: sends requests, waits, and reads the clocks. It caches the
/// provider's metadata and keys, and keeps nothing about the people who sign in.
package final class OpenIDConnectClient: Sendable {
    package struct SignedIn: Sendable {
        /// The claims of the ID token; if the provider issued none, the claims of the userinfo endpoint.
        package let identity: IDToken
        package let tokens: TokenAnswer
    }

    package let issuer: Issuer
    private let credentials: ClientCredentials
    private let overrides: [String: HTTPAddress]
    private let http: HTTPClient
    let clock: Clock
    private let metadataCache = Locked(MetadataCache())
    private let keys: ProviderKeys
    /// The number of ``discard(_:)`` calls that are still in flight.
    let discarded = Locked(0)

    /// Two clocks and a way to wait, which tests replace.
    package struct Clock: Sendable {
        package var now: @Sendable () -> ContinuousClock.Instant
        package var date: @Sendable () -> Date
        package var wait: @Sendable (Duration) async throws -> Void

        package init(
            now: @escaping @Sendable () -> ContinuousClock.Instant = { .now },
            date: @escaping @Sendable () -> Date = { Date() },
            wait: @escaping @Sendable (Duration) async throws -> Void = { try await Task.sleep(for: $0) }
        ) {
            self.now = now
            self.date = date
            self.wait = wait
        }
    }

    /// - Parameter overrides: Endpoint addresses that replace those of the provider's metadata.
    package init(
        issuer: Issuer,
        credentials: ClientCredentials,
        http: HTTPClient,
        overrides: [String: HTTPAddress] = [:],
        clock: Clock = Clock()
    ) {
        self.issuer = issuer
        self.credentials = credentials
        self.overrides = overrides
        self.http = http
        self.clock = clock
        keys = ProviderKeys(clock: clock)
    }

    // MARK: The provider

    /// The provider with its metadata, which is read again when the cached copy is stale.
    ///
    /// - Throws: `IdentityError`: `providerUnavailable`, `providerMisconfigured`.
    package func provider() async throws(IdentityError) -> ProviderClient {
        switch metadataCache.withLock({ $0.decision(at: clock.now()) }) {
        case .use(let metadata): return ProviderClient(metadata: metadata, credentials: credentials)
        case .fail(let error): throw error
        case .fetch: break
        }
        do throws(IdentityError) {
            let (metadata, age) = try await discover()
            metadataCache.withLock { $0.read(metadata, age: age, at: clock.now()) }
            return ProviderClient(metadata: metadata, credentials: credentials)
        } catch {
            // A cancelled request tells nothing about the provider.
            if error.code != .userCanceled { metadataCache.withLock { $0.failed(error, at: clock.now()) } }
            // Falls back to an old copy, if there is one.
            guard case .use(let metadata) = metadataCache.withLock({ $0.decision(at: clock.now()) }) else {
                throw error
            }
            return ProviderClient(metadata: metadata, credentials: credentials)
        }
    }

    private func discover() async throws(IdentityError) -> (ProviderMetadata, Duration?) {
        let limits = HTTPLimits(size: ProviderMetadata.maximumSize)
        let response = try await get(issuer.configurationAddress, limits)
        var documents = [try ProviderDocument(response, of: issuer)]
        if documents[0].isIncomplete, let more = try await secondDocument(limits) { documents.append(more) }
        return (try ProviderMetadata(documents, issuer: issuer, overrides: overrides), response.maximumAge)
    }

    /// Reads the second metadata document. Few providers have it; others respond with a page or a redirect, which is
    /// ignored. A document with another issuer is an error.
    private func secondDocument(_ limits: HTTPLimits) async throws(IdentityError) -> ProviderDocument? {
        guard let address = issuer.authorizationServerAddress else { return nil }
        let request = HTTPRequest(address, fields: ["Accept": "application/json"], limits: limits)
        switch await send(request) {
        case .failure(let error):
            guard error.reason != .cancelled else { throw .cancelled }
            return nil
        case .success(let response):
            do throws(IdentityError) {
                return try ProviderDocument(response, of: issuer)
            } catch {
                guard error.code == .providerUnavailable else { throw error }
                return nil
            }
        }
    }

    private func get(
        _ address: HTTPAddress?,
        _ limits: HTTPLimits,
        fields: [String: String] = [:]
    ) async throws(IdentityError) -> HTTPResponse {
        guard let address else {
            throw .misconfigured(issuer, "is an address to which no path can be added; correct oidcIssuer")
        }
        let fields = ["Accept": "application/json"].merging(fields) { $1 }
        do throws(HTTPError) {
            return try await http.send(HTTPRequest(address, fields: fields, limits: limits))
        } catch {
            throw IdentityError(error, issuer)
        }
    }

    /// Sends a request, and returns the outcome as a value.
    package func send(_ request: HTTPRequest) async -> Result<HTTPResponse, HTTPError> {
        do throws(HTTPError) {
            return .success(try await http.send(request))
        } catch {
            return .failure(error)
        }
    }

    // MARK: Tokens

    /// Checks a token's signature. Reads the provider's keys again if that may help.
    ///
    /// - Parameters:
    ///   - name: The kind of token, for error messages.
    ///   - need: Where the token came from.
    ///   - isPatient: Whether to throw `providerUnavailable` for a token that may be signed with a new key while the
    ///     keys may not be read again.
    /// - Throws: `IdentityError`: `authenticationFailed`, `providerUnavailable`.
    package func verify(
        _ text: String,
        as name: String = "ID token",
        from need: KeyNeed = .message,
        isPatient: Bool = false
    ) async throws(IdentityError) -> VerifiedToken {
        let token = try signature(text, as: name, from: need)
        let (verdict, hasRead) = try await keys.verify(token, for: need, readKeys)
        switch verdict {
        case .verified(let verified): return verified
        case .refused(let error):
            guard isPatient, !hasRead, error.mayBeNewKey else {
                if case .unusableKey(_, let flaw) = error { throw .badToken(issuer, flaw) }
                throw .notSigned(name, by: issuer, error.description)
            }
            throw .unusableNow(issuer, "its keys were read a moment ago, and lack the key of a token")
        case .unavailable, .fetch: throw .unreachable(issuer, "its keys could not be read")
        }
    }

    private func signature(
        _ text: String,
        as name: String,
        from need: KeyNeed = .message
    ) throws(IdentityError) -> CompactSignature {
        do throws(SignatureError) {
            return try CompactSignature(parsing: text)
        } catch {
            // An unreadable message may come from any sender, so the error does not blame the provider.
            if need == .answer, error.isUnreadable { throw .badToken(issuer, "its \(name): \(error)") }
            throw .notSigned(name, by: issuer, error.description)
        }
    }

    /// Checks a logout token.
    ///
    /// - Throws: `IdentityError`: as ``verify(_:as:from:isPatient:)``.
    package func logoutToken(_ text: String) async throws(IdentityError) -> LogoutToken {
        try logoutToken(await verify(text, as: "logout token"))
    }

    /// Checks a logout token with the cached keys. Sends no request, and never waits.
    ///
    /// - Returns: `nil` if the cached keys do not verify it; the provider's current keys may.
    /// - Throws: `IdentityError`: `authenticationFailed`.
    package func logoutTokenByKnownKeys(_ text: String) throws(IdentityError) -> LogoutToken? {
        guard let verified = keys.verifiedByKnownKeys(try signature(text, as: "logout token")) else { return nil }
        return try logoutToken(verified)
    }

    private func logoutToken(_ token: VerifiedToken) throws(IdentityError) -> LogoutToken {
        try LogoutToken(token, issuer: issuer, clientID: credentials.identifier, now: clock.date())
    }

    /// Reads the keys if they are missing or about to expire.
    private func prepareKeys() async throws(IdentityError) {
        guard try await keys.prepare(readKeys) else { throw .unreachable(issuer, "its keys could not be read") }
    }

    func fetchKeys() async throws(IdentityError) { try await keys.reread(readKeys) }

    @Sendable
    private func readKeys(_ willAsk: @Sendable () -> Void) async -> Result<JSONWebKeySet, IdentityError> {
        do throws(IdentityError) {
            let address = try await provider().metadata.keysAddress
            willAsk()
            let response = try await get(address, HTTPLimits(size: JSONWebKeySet.maximumSize))
            guard response.status == 200 else {
                throw .unusableNow(issuer, "status \(response.status) of its keys", response.retryAfter)
            }
            do throws(Problem) {
                return .success(try JSONWebKeySet(parsing: response.body))
            } catch {
                throw .unusableNow(issuer, "its keys: \(error)")
            }
        } catch {
            return .failure(error)
        }
    }

    /// Forgets failures, because the network is back: the next request is sent without a pause.
    package func forgetFailures() {
        metadataCache.withLock { $0.forgetFailure() }
        keys.forgetFailures()
    }

    /// Checks who the tokens belong to. Tokens that are rejected are revoked.
    private func accept(
        _ tokens: TokenAnswer,
        nonce: IDTokenExpectation.Nonce,
        requestedAt: Date
    ) async throws(IdentityError) -> SignedIn {
        do throws(IdentityError) {
            return SignedIn(identity: try await identity(tokens, nonce, requestedAt), tokens: tokens)
        } catch {
            discard(IssuedTokens(tokens))
            throw error
        }
    }

    /// Checks the ID token; without one, asks the userinfo endpoint.
    private func identity(
        _ tokens: TokenAnswer,
        _ nonce: IDTokenExpectation.Nonce,
        _ requestedAt: Date
    ) async throws(IdentityError) -> IDToken {
        let access = tokens.accessToken.text
        let expectation = IDTokenExpectation(
            issuer: issuer,
            clientID: credentials.identifier,
            nonce: nonce,
            accessToken: access,
            requestedAt: requestedAt
        )
        if let text = tokens.idToken {
            return try IDToken(await verify(text, from: .answer), expectation, now: clock.date())
        }
        // The authorization code flow needs an ID token. The device grant is OAuth's (RFC 8628) and has none.
        guard case .absent = nonce else { throw .badToken(issuer, "“id_token” is missing") }
        return try await userInfo(access, of: nil)
    }

    /// Reads the claims about the owner of an access token from the userinfo endpoint.
    ///
    /// - Parameter subject: The expected subject; `nil` for any.
    /// - Throws: `IdentityError`: `authenticationFailed` for another subject, or if the provider returns none.
    package func userInfo(_ accessToken: String, of subject: String?) async throws(IdentityError) -> IDToken {
        guard let endpoint = try await provider().metadata.userInfoEndpoint else {
            throw .badToken(issuer, "“id_token” is missing, and there is no userinfo_endpoint to ask")
        }
        let response = try await get(endpoint, HTTPLimits(), fields: ["Authorization": "Bearer \(accessToken)"])
        guard case .granted(let json) = EndpointAnswer(response) else {
            throw .unusableNow(
                issuer,
                "status \(response.status) of its userinfo_endpoint, or no JSON object",
                response.retryAfter
            )
        }
        return try IDToken(userInfo: json, issuer: issuer, subject: subject)
    }

    // MARK: Signing in

    /// Begins a sign-in in the browser. The caller keeps the flow, and passes it to
    /// ``completeSignIn(_:query:requestedAt:)``.
    ///
    /// - Parameter redirect: The address that the browser comes back to.
    package func beginSignIn(redirect: String) async throws(IdentityError) -> AuthorizationCodeFlow {
        AuthorizationCodeFlow(try await provider(), redirect: redirect, start: clock.now())
    }

    /// Completes a sign-in with the query that the browser came back with.
    ///
    /// - Parameter requestedAt: When the sign-in began, by the wall clock.
    /// - Throws: `IdentityError`; the person is not signed in then.
    package func completeSignIn(
        _ flow: AuthorizationCodeFlow,
        query: String,
        requestedAt: Date
    ) async throws(IdentityError) -> SignedIn {
        var flow = flow
        var effect = flow.handle(.answered(query), at: clock.now())
        while let next = effect {
            switch next {
            case .exchange(let request): effect = flow.handle(.exchanged(await send(request)), at: clock.now())
            case .finished(let result):
                return try await accept(result.get(), nonce: .equal(flow.secrets.nonce), requestedAt: requestedAt)
            }
        }
        throw .anotherSignIn
    }

    /// Signs in with a code on another device. Ends early if the task is cancelled.
    ///
    /// - Parameters:
    ///   - show: Called once, with the code for the person.
    ///   - awaitedAt: When the caller last polled for the outcome; without it, the caller counts as waiting all the
    ///     time.
    /// - Throws: `IdentityError`; the person is not signed in then.
    package func signInByDeviceCode(
        scopes: [String],
        show: @Sendable (DeviceCode) -> Void,
        awaitedAt: (@Sendable () -> ContinuousClock.Instant?)? = nil
    ) async throws(IdentityError) -> SignedIn {
        let requestedAt = clock.date()
        var grant = DeviceGrant(try await provider(), scopes: scopes, start: clock.now())
        var effects = grant.handle(.begin, at: clock.now())
        while !effects.isEmpty {
            switch effects.removeFirst() {
            case .show(let code): show(code)
            case .send(let request): effects += grant.handle(.answered(await send(request)), at: clock.now())
            case .finished(let result):
                return try await accept(result.get(), nonce: .absent(or: nil), requestedAt: requestedAt)
            case .wait(let duration):
                let isOver = (try? await clock.wait(duration)) != nil
                if let time = awaitedAt.map({ $0() }) ?? clock.now() { effects += grant.handle(.awaited, at: time) }
                effects += grant.handle(isOver ? .waited : .cancelled, at: clock.now())
            }
        }
        throw .cancelled
    }

    // MARK: Staying signed in

    /// Refreshes the tokens. The caller must not run two refreshes at a time.
    ///
    /// - Parameters:
    ///   - earlier: The person who is signed in. An ID token of another person leads to `reauthenticationNeeded`.
    ///   - mayBeUsed: Whether an earlier attempt had no response.
    package func refresh(
        _ token: Secret,
        scopes: [String] = [],
        of earlier: IDToken,
        mayBeUsed: Bool = false
    ) async -> RefreshOutcome {
        do throws(IdentityError) {
            // The keys come first: a refresh uses up the token, even if its response cannot be checked.
            if earlier.isSigned { try await prepareKeys() }
            var flow = RefreshFlow(try await provider(), token: token, scopes: scopes, mayBeUsed: mayBeUsed)
            var request = flow.begin()
            while true {
                switch flow.handle(await send(request)) {
                case .send(let next): request = next
                case .finished(.renewed(let tokens)): return try await check(tokens, earlier)
                case .finished(let outcome): return outcome
                }
            }
        } catch {
            return .unavailable(error, tokenMayBeUsed: mayBeUsed)
        }
    }

    /// Checks that an ID token in the response belongs to the same sign-in (OpenID Connect Core, section 12.2).
    private func check(_ tokens: TokenAnswer, _ earlier: IDToken) async throws(IdentityError) -> RefreshOutcome {
        guard let text = tokens.idToken else { return .renewed(tokens) }
        let expectation = IDTokenExpectation(
            issuer: issuer,
            clientID: credentials.identifier,
            nonce: .absent(or: earlier.claims["nonce"]?.string),
            accessToken: tokens.accessToken.text,
            requestedAt: nil,
            earlier: earlier
        )
        do throws(IdentityError) {
            let (token, now) = (try await verify(text, from: .answer), clock.date())
            // A wrong clock must not end the sign-in. The tokens are valid without an ID token, so one with wrong times
            // is dropped.
            guard !IDToken.isOfAnotherTimeAlone(token, expectation, now: now) else {
                return .renewed(tokens.withoutIDToken)
            }
            _ = try IDToken(token, expectation, now: now)
            return .renewed(tokens)
        } catch {
            // The old token is used up, and the new one cannot be trusted. The person has to authenticate, but the
            // session goes on.
            discard(IssuedTokens(tokens, withSession: false))
            return error.code == .providerUnavailable
                ? .unavailable(error, tokenMayBeUsed: true) : .reauthenticationNeeded
        }
    }
}
