import DBusTransport
package import FoundationEssentials
package import HTTPClient
package import Identity
package import JSONWebSignature
package import StrictJSON
import Synchronization

/// Carries out what the values of this module decide: it asks the provider, waits, and reads the clocks. It keeps the provider's description and
/// keys, and nothing of anybody who signs in.
package final class OpenIDConnectClient: Sendable {
    /// Who has signed in, with what the provider has issued.
    package struct SignedIn: Sendable {
        /// The ID token's claims, or for a provider that issued none what it said of the person when it was asked.
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
    /// How many ends of what nobody wants are under way.
    let discarded = Locked(0)

    /// The two clocks, and waiting; tests have others.
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

    /// - Parameter overrides: addresses that count before the provider's own word for them.
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

    /// The provider as it describes itself, read again when that is due.
    ///
    /// - Throws: `SignInError`: `providerUnavailable`, `providerMisconfigured`.
    package func provider() async throws(SignInError) -> ProviderClient {
        switch metadataCache.withLock({ $0.decision(at: clock.now()) }) {
        case .use(let metadata): return ProviderClient(metadata: metadata, credentials: credentials)
        case .fail(let error): throw error
        case .fetch: break
        }
        do throws(SignInError) {
            let (metadata, age) = try await discover()
            metadataCache.withLock { $0.read(metadata, age: age, at: clock.now()) }
            return ProviderClient(metadata: metadata, credentials: credentials)
        } catch {
            // Who has given up says nothing of the provider.
            if error.code != .userCanceled { metadataCache.withLock { $0.failed(error, at: clock.now()) } }
            // An old copy serves, where there is one.
            guard case .use(let metadata) = metadataCache.withLock({ $0.decision(at: clock.now()) }) else {
                throw error
            }
            return ProviderClient(metadata: metadata, credentials: credentials)
        }
    }

    private func discover() async throws(SignInError) -> (ProviderMetadata, Duration?) {
        let limits = HTTPLimits(size: ProviderMetadata.maximumSize)
        let response = try await get(issuer.configurationAddress, limits)
        let document = try ProviderDocument(response, of: issuer)
        guard document.isIncomplete else {
            return (try ProviderMetadata(document, issuer: issuer, overrides: overrides), response.maximumAge)
        }
        let more = try await secondDocument(limits)
        let metadata =
            if let more {
                try ProviderMetadata(document, more, issuer: issuer, overrides: overrides)
            } else {
                try ProviderMetadata(document, issuer: issuer, overrides: overrides)
            }
        return (metadata, response.maximumAge)
    }

    /// Few providers have it, and others answer with a page, or send elsewhere: that does no harm. That it names another issuer does.
    private func secondDocument(_ limits: HTTPLimits) async throws(SignInError) -> ProviderDocument? {
        guard let address = issuer.authorizationServerAddress else { return nil }
        let request = HTTPRequest(address, fields: ["Accept": "application/json"], limits: limits)
        switch await send(request) {
        case .failure(let error):
            guard error.reason != .cancelled else { throw .cancelled }
            return nil
        case .success(let response):
            do throws(SignInError) {
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
    ) async throws(SignInError) -> HTTPResponse {
        guard let address else { throw .misconfigured(issuer, "has an address that none can be made of") }
        let fields = ["Accept": "application/json"].merging(fields) { $1 }
        do throws(HTTPError) {
            return try await http.send(HTTPRequest(address, fields: fields, limits: limits))
        } catch {
            throw SignInError(error, issuer)
        }
    }

    /// Sends a request; its outcome is a value, for the flows.
    func send(_ request: HTTPRequest) async -> Result<HTTPResponse, HTTPError> {
        do throws(HTTPError) {
            return .success(try await http.send(request))
        } catch {
            return .failure(error)
        }
    }

    // MARK: Tokens

    /// Checks a token's signature, with the provider's keys read again where that may help.
    ///
    /// - Parameters:
    ///   - name: what it is to be, for people.
    ///   - need: where it came from.
    ///   - isPatient: whether a token whose key may be a new one counts as not to be judged while the keys may not be read again.
    /// - Throws: `SignInError`: `authenticationFailed`, `providerUnavailable`.
    package func verify(
        _ text: String,
        as name: String = "ID token",
        from need: KeyNeed = .message,
        isPatient: Bool = false
    ) async throws(SignInError) -> VerifiedToken {
        let token = try signature(text, as: name, from: need)
        let (verdict, hasRead) = try await keys.verify(token, for: need, readKeys)
        switch verdict {
        case .verified(let verified): return verified
        case .refused(let error):
            guard isPatient, !hasRead, error.mayBeNewKey else {
                if case .unusableKey(_, let flaw) = error { throw .badToken(issuer, flaw) }
                throw .notSigned(name, by: issuer, error.description)
            }
            throw .unusableNow(issuer, "its keys were read a moment ago, and lack the one of a token")
        case .unavailable, .fetch: throw .unreachable(issuer, "its keys could not be read")
        }
    }

    private func signature(
        _ text: String,
        as name: String,
        from need: KeyNeed = .message
    ) throws(SignInError) -> CompactSignature {
        do throws(SignatureError) {
            return try CompactSignature(parsing: text)
        } catch {
            // A message may be anybody's.
            if need == .answer, error.isUnreadable { throw .badToken(issuer, "its \(name): \(error)") }
            throw .notSigned(name, by: issuer, error.description)
        }
    }

    /// Checks the provider's word that a session has ended.
    ///
    /// - Throws: `SignInError`: as ``verify(_:)``.
    package func logoutToken(_ text: String) async throws(SignInError) -> LogoutToken {
        try logoutToken(await verify(text, as: "logout token"))
    }

    /// Checks the same with the keys that were read before. Asks the provider nothing, and waits for nothing.
    ///
    /// - Returns: `nil` if these keys do not verify it; the provider's keys of now may.
    /// - Throws: `SignInError`: `authenticationFailed`.
    package func logoutTokenByKnownKeys(_ text: String) throws(SignInError) -> LogoutToken? {
        guard let verified = keys.verifiedByKnownKeys(try signature(text, as: "logout token")) else { return nil }
        return try logoutToken(verified)
    }

    private func logoutToken(_ token: VerifiedToken) throws(SignInError) -> LogoutToken {
        try LogoutToken(token, issuer: issuer, clientID: credentials.identifier, now: clock.date())
    }

    /// Sees to it that the keys are there.
    private func prepareKeys() async throws(SignInError) {
        guard try await keys.prepare(readKeys) else { throw .unreachable(issuer, "its keys could not be read") }
    }

    /// Reads the keys.
    func fetchKeys() async throws(SignInError) { try await keys.reread(readKeys) }

    @Sendable
    private func readKeys(_ willAsk: @Sendable () -> Void) async -> Result<JSONWebKeySet, SignInError> {
        do throws(SignInError) {
            let address = try await provider().metadata.keysAddress
            willAsk()
            let response = try await get(address, HTTPLimits(size: JSONWebKeySet.maximumSize))
            guard response.status == 200 else {
                throw .unusableNow(issuer, "status \(response.status) of its keys", response.retryAfter)
            }
            do throws(JSONWebKeySet.Flaw) {
                return .success(try JSONWebKeySet(parsing: response.body))
            } catch {
                throw .unusableNow(issuer, "its keys: \(error)")
            }
        } catch {
            return .failure(error)
        }
    }

    /// The network is back: what has failed is asked for again as soon as somebody needs it.
    package func forgetFailures() {
        metadataCache.withLock { $0.forgetFailure() }
        keys.forgetFailures()
    }

    /// Tells who the tokens are of. Tokens that are refused are ended.
    private func accept(
        _ tokens: TokenAnswer,
        nonce: IDTokenExpectation.Nonce,
        requestedAt: Date
    ) async throws(SignInError) -> SignedIn {
        do throws(SignInError) {
            return SignedIn(identity: try await identity(tokens, nonce, requestedAt), tokens: tokens)
        } catch {
            discard(IssuedTokens(tokens))
            throw error
        }
    }

    /// Checks the ID token; where there is none, asks the provider.
    private func identity(
        _ tokens: TokenAnswer,
        _ nonce: IDTokenExpectation.Nonce,
        _ requestedAt: Date
    ) async throws(SignInError) -> IDToken {
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
        // The authorization code flow has to have one; only the device grant is one of OAuth's (RFC 8628).
        guard case .absent = nonce else { throw .badToken(issuer, "“id_token” is missing") }
        return try await userInfo(access, of: nil)
    }

    /// What the provider says of the person whom an access token is of.
    ///
    /// - Parameter subject: who it has to be; `nil` for whoever it is.
    /// - Throws: `SignInError`: `authenticationFailed` for another person, and where the provider does not say.
    package func userInfo(_ accessToken: String, of subject: String?) async throws(SignInError) -> IDToken {
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

    /// Begins a sign-in in the browser. The flow is kept by whoever completes it.
    ///
    /// - Parameter redirect: where the browser comes back to.
    package func beginSignIn(redirect: String) async throws(SignInError) -> AuthorizationCodeFlow {
        AuthorizationCodeFlow(try await provider(), redirect: redirect, start: clock.now())
    }

    /// Completes it with the query that the browser came back with.
    ///
    /// - Parameter requestedAt: when it began, by the wall clock.
    /// - Throws: `SignInError`; nobody is signed in then.
    package func completeSignIn(
        _ flow: AuthorizationCodeFlow,
        query: String,
        requestedAt: Date
    ) async throws(SignInError) -> SignedIn {
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

    /// Signs in with a code on another device. Ends early when the task is cancelled.
    ///
    /// - Parameters:
    ///   - show: is called once, with what the person needs.
    ///   - awaitedAt: when somebody last asked for the outcome; without it, somebody waits all the time.
    /// - Throws: `SignInError`; nobody is signed in then.
    package func signInByDeviceCode(
        scopes: [String],
        show: @Sendable (DeviceCode) -> Void,
        awaitedAt: (@Sendable () -> ContinuousClock.Instant?)? = nil
    ) async throws(SignInError) -> SignedIn {
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

    /// Renews the tokens. One at a time for the device: whoever calls sees to it.
    ///
    /// - Parameters:
    ///   - earlier: who has signed in; an ID token of another person ends it as `reauthenticationNeeded`.
    ///   - mayBeUsed: whether an attempt of before had no answer.
    package func refresh(
        _ token: Secret,
        scopes: [String] = [],
        of earlier: IDToken,
        mayBeUsed: Bool = false
    ) async -> RefreshOutcome {
        do throws(SignInError) {
            // A refresh whose answer cannot be checked has used the token up.
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

    /// An ID token that came along has to be of the same sign-in (OpenID Connect Core, section 12.2).
    private func check(_ tokens: TokenAnswer, _ earlier: IDToken) async throws(SignInError) -> RefreshOutcome {
        guard let text = tokens.idToken else { return .renewed(tokens) }
        let expectation = IDTokenExpectation(
            issuer: issuer,
            clientID: credentials.identifier,
            nonce: .absent(or: earlier.claims["nonce"]?.string),
            accessToken: tokens.accessToken.text,
            requestedAt: nil,
            earlier: earlier
        )
        do throws(SignInError) {
            let (token, now) = (try await verify(text, from: .answer), clock.date())
            // A wrong clock costs nobody the sign-in: tokens count without an ID token, too, and one of another time is worth no more than none.
            guard !IDToken.isOfAnotherTimeAlone(token, expectation, now: now) else {
                return .renewed(tokens.withoutIDToken)
            }
            _ = try IDToken(token, expectation, now: now)
            return .renewed(tokens)
        } catch {
            // The old token is used up. What the new one is worth is not known, so the person has to say who they are. Their session goes on.
            discard(IssuedTokens(tokens, withSession: false))
            return error.code == .providerUnavailable
                ? .unavailable(error, tokenMayBeUsed: true) : .reauthenticationNeeded
        }
    }
}
