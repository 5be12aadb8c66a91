package import HTTPClient
package import Identity
import StrictJSON
import Synchronization

/// What a provider has issued that is not to count any more: at the end of a session, or because it was refused.
package struct IssuedTokens: Sendable {
    /// By which the provider knows its own session; `nil` where that goes on.
    let idToken: String?
    let refreshToken: Secret?
    let accessTokens: [Secret]

    package init(idToken: String?, refreshToken: Secret?, accessTokens: [Secret]) {
        self.idToken = idToken
        self.refreshToken = refreshToken
        self.accessTokens = accessTokens
    }

    /// - Parameter withSession: whether the provider's session is to end, too.
    package init(_ tokens: TokenAnswer, withSession: Bool = true) {
        self.init(
            idToken: withSession ? tokens.idToken : nil,
            refreshToken: tokens.refreshToken,
            accessTokens: [tokens.accessToken]
        )
    }
}

/// What the provider is told when a session is over: requests, and what their answers mean. Of an error, the code tells whether a later attempt may
/// help: `providerUnavailable` says so, another one is final.
extension ProviderClient {
    /// What kind of token is revoked (RFC 7009, section 2.1).
    package enum TokenKind: String, Sendable {
        case refreshToken = "refresh_token"
        case accessToken = "access_token"
    }

    /// A request to revoke a token; `nil` for a provider that revokes none.
    package func revocation(of token: Secret, _ kind: TokenKind) -> HTTPRequest? {
        metadata.revocationEndpoint.map {
            request($0, [("token", token.text), ("token_type_hint", kind.rawValue)])
        }
    }

    /// - Throws: `SignInError`: `providerUnavailable`, or `providerMisconfigured`, which is final.
    package func checkRevocation(_ result: Result<HTTPResponse, HTTPError>) throws(SignInError) {
        let response: HTTPResponse
        do throws(HTTPError) {
            response = try result.get()
        } catch {
            // Whatever stood in the way, a redirect or the end of this program too, may be gone later.
            throw .outage(error, issuer)
        }
        // A body means nothing here (RFC 7009, section 2.2).
        if (200..<300).contains(response.status) { return }
        switch EndpointAnswer(response) {
        // The token does not count any more.
        case .error("invalid_token", _): return
        // glewlwyd lets only clients with a secret revoke.
        case .error("invalid_client", _), .error("unauthorized_client", _), .empty(401), .empty(403):
            throw .misconfigured(issuer, "does not let this client revoke tokens; give the client a secret there")
        case .error(let word, _): throw .misconfigured(issuer, "does not revoke a token (\(word.printable(64)))")
        case .unusable(let reason) where response.status == 429 || response.status >= 500:
            throw .unusableNow(issuer, reason, response.retryAfter)
        case .granted, .empty, .unusable:
            throw .misconfigured(issuer, "does not revoke a token (status \(response.status))")
        }
    }

    /// A request to end the provider's own session, by the ID token in place of a browser's cookie (OpenID Connect RP-Initiated Logout 1.0, section 2);
    /// `nil` for a provider that has no such page. The token is in the body, not in an address that servers write to their logs.
    package func endOfSession(idToken: String) -> HTTPRequest? {
        metadata.endSessionEndpoint.map { address in
            let form = [("id_token_hint", idToken), ("client_id", credentials.identifier)]
            return HTTPRequest(
                address,
                .post(Array(FormFields.encode(form).utf8), contentType: FormFields.contentType)
            )
        }
    }

    /// Some end the session at once, others ask in a page first, which nobody sees: both are an answer, and final. The tokens are revoked after it in
    /// any case.
    ///
    /// - Throws: `SignInError`: `providerUnavailable` where the provider did not answer, or does not work at the moment.
    package func checkEndOfSession(_ result: Result<HTTPResponse, HTTPError>) throws(SignInError) {
        switch result {
        case .failure(let error) where error.isTemporary: throw .outage(error, issuer)
        case .success(let response) where response.status == 429 || response.status >= 500:
            throw .unusableNow(
                issuer,
                "status \(response.status) of its end_session_endpoint",
                response.retryAfter
            )
        case .failure, .success: return
        }
    }

    /// Throws where what was asked for was not done.
    fileprivate typealias Check = (Result<HTTPResponse, HTTPError>) throws(SignInError) -> Void

    /// End of the session first: after a revocation, Keycloak tells nobody of it any more.
    fileprivate func stepsToEnd(_ tokens: IssuedTokens) -> [(HTTPRequest, Check)] {
        var steps: [(HTTPRequest, Check)] = []
        if let request = tokens.idToken.flatMap(endOfSession) { steps.append((request, checkEndOfSession)) }
        let refreshTokens = tokens.refreshToken.map { [($0, TokenKind.refreshToken)] } ?? []
        for (token, kind) in refreshTokens + tokens.accessTokens.map({ ($0, .accessToken) }) {
            if let request = revocation(of: token, kind) { steps.append((request, checkRevocation)) }
        }
        return steps
    }
}

extension OpenIDConnectClient {
    /// How long an end may take in all: whoever waits for it was promised a minute.
    private static let longestEnd: Duration = .seconds(50)

    /// Ends the provider's session, at a provider that does so without a page, and revokes the tokens, at one that revokes tokens. What fails keeps
    /// nothing else from being tried.
    ///
    /// - Throws: `SignInError`: `providerUnavailable` where a later attempt with all of them may help; `providerMisconfigured` where none does.
    package func end(_ tokens: IssuedTokens) async throws(SignInError) {
        let deadline = clock.now() + Self.longestEnd
        var (outage, refusal): (SignInError?, SignInError?)
        for (request, check) in try await providerToEnd().stepsToEnd(tokens) {
            do throws(SignInError) {
                try check(await send(request, until: deadline))
            } catch {
                if error.code == .providerUnavailable { outage = outage ?? error } else { refusal = refusal ?? error }
            }
        }
        if let error = outage ?? refusal { throw error }
    }

    /// The pauses between the attempts to end what nobody wants: those of the broker's outbox, as far as this process is likely to live.
    private static let pausesOfDiscard: [Duration] = [.seconds(5), .seconds(30), .seconds(120), .seconds(600)]
    /// How many may wait for a later attempt. Over that, one attempt has to do.
    private static let mostDiscarded = 32

    /// Ends what nobody wants, and lets nobody wait. It is in memory only: where the provider is away it is tried again, as long as this process lives.
    package func discard(_ tokens: IssuedTokens) {
        Task {
            let mayWait = discarded.withLock { count in
                defer { count += 1 }
                return count < Self.mostDiscarded
            }
            defer { discarded.withLock { $0 -= 1 } }
            for pause in mayWait ? Self.pausesOfDiscard : [] {
                if await isEnded(tokens) { return }
                guard (try? await clock.wait(pause)) != nil else { return }
            }
            _ = await isEnded(tokens)
        }
    }

    /// Whether no later attempt would help.
    private func isEnded(_ tokens: IssuedTokens) async -> Bool {
        do throws(SignInError) {
            try await end(tokens)
            return true
        } catch {
            return error.code != .providerUnavailable
        }
    }

    /// A provider that is not known has refused nothing: a later attempt may help, whatever the reason.
    private func providerToEnd() async throws(SignInError) -> ProviderClient {
        do throws(SignInError) {
            return try await provider()
        } catch {
            throw error.code == .providerUnavailable ? error : SignInError(.providerUnavailable, error.description)
        }
    }

    private func send(
        _ request: HTTPRequest,
        until deadline: ContinuousClock.Instant
    ) async -> Result<HTTPResponse, HTTPError> {
        var request = request
        request.limits.total = min(request.limits.total, deadline - clock.now())
        guard request.limits.total > .zero else { return .failure(HTTPError(.timedOut, attempted: "\(request)")) }
        return await send(request)
    }
}
