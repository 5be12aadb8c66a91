import Basics
package import HTTPClient
package import Identity
import Synchronization

/// Tokens to revoke, at the end of a session or because they were rejected.
package struct IssuedTokens: Sendable {
    /// Names the provider's own session; `nil` if that session goes on.
    let idToken: String?
    let refreshToken: Secret?
    let accessTokens: [Secret]

    package init(idToken: String?, refreshToken: Secret?, accessTokens: [Secret]) {
        self.idToken = idToken
        self.refreshToken = refreshToken
        self.accessTokens = accessTokens
    }

    /// - Parameter withSession: Whether to end the provider's own session, too.
    package init(_ tokens: TokenAnswer, withSession: Bool = true) {
        self.init(
            idToken: withSession ? tokens.idToken : nil,
            refreshToken: tokens.refreshToken,
            accessTokens: [tokens.accessToken]
        )
    }
}

/// The requests that end a session, and the meaning of their responses. In an error, `providerUnavailable` means that a
/// later attempt may help; every other code is final.
extension ProviderClient {
    /// The kind of token that is revoked (RFC 7009, section 2.1).
    package enum TokenKind: String, Sendable {
        case refreshToken = "refresh_token"
        case accessToken = "access_token"
    }

    /// The request to revoke a token; `nil` if the provider has no revocation endpoint.
    package func revocation(of token: Secret, _ kind: TokenKind) -> HTTPRequest? {
        metadata.revocationEndpoint.map { request($0, [("token", token.text), ("token_type_hint", kind.rawValue)]) }
    }

    /// Checks the response to a revocation.
    ///
    /// - Throws: `IdentityError`: `providerUnavailable`, or `providerMisconfigured`, which is final.
    package func checkRevocation(_ result: Result<HTTPResponse, HTTPError>) throws(IdentityError) {
        let response: HTTPResponse
        do throws(HTTPError) {
            response = try result.get()
        } catch {
            // Any transport failure, also a redirect or the end of this process, may be over at the next attempt.
            throw .outage(error, issuer)
        }
        // The body has no meaning here (RFC 7009, section 2.2).
        if (200..<300).contains(response.status) { return }
        switch EndpointAnswer(response) {
        // The token is invalid already.
        case .error("invalid_token", _): return
        // glewlwyd lets only clients with a secret revoke tokens.
        case .error("invalid_client", _), .error("unauthorized_client", _), .empty(401), .empty(403):
            throw .misconfigured(issuer, "does not let this client revoke tokens; give the client a secret there")
        case .error(let word, _): throw .misconfigured(issuer, "does not revoke a token (\(word.printable(64)))")
        case .unusable(let reason) where response.status == 429 || response.status >= 500:
            throw .unusableNow(issuer, reason, response.retryAfter)
        case .granted, .empty, .unusable:
            throw .misconfigured(issuer, "does not revoke a token (status \(response.status))")
        }
    }

    /// The request to end the provider's own session, with the ID token instead of a browser's cookie (OpenID Connect
    /// RP-Initiated Logout 1.0, section 2); `nil` if the provider has no endpoint for it. The token is in the body,
    /// because servers write addresses to their logs.
    package func endOfSession(idToken: String) -> HTTPRequest? {
        metadata.endSessionEndpoint.map { address in
            let form = [("id_token_hint", idToken), ("client_id", credentials.identifier)]
            return HTTPRequest(address, .post(Array(FormFields.encode(form).utf8), contentType: FormFields.contentType))
        }
    }

    /// Checks the response to the end of a session. Some providers end the session at once. Other providers return a
    /// page that asks the person first, which no person sees. Both responses are final, because the tokens are revoked
    /// afterwards in any case.
    ///
    /// - Throws: `IdentityError`: `providerUnavailable` if the provider did not respond, or does not work at the
    ///   moment.
    package func checkEndOfSession(_ result: Result<HTTPResponse, HTTPError>) throws(IdentityError) {
        switch result {
        case .failure(let error) where error.isTemporary: throw .outage(error, issuer)
        case .success(let response) where response.status == 429 || response.status >= 500:
            throw .unusableNow(issuer, "status \(response.status) of its end_session_endpoint", response.retryAfter)
        case .failure, .success: return
        }
    }

    /// Checks the response to a request, and throws if the request failed.
    fileprivate typealias Check = (Result<HTTPResponse, HTTPError>) throws(IdentityError) -> Void

    /// The requests to send, each with the check of its response. The end of the session comes first: after a
    /// revocation, Keycloak sends no logout tokens for the session.
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
    /// The time limit of ``end(_:)``. The broker expects the response within a minute.
    private static let longestEnd: Duration = .seconds(50)

    /// Ends the provider's own session if it has an endpoint for that, and revokes the tokens if it has one for that.
    /// Tries every step, even after a failure.
    ///
    /// - Throws: `IdentityError`: `providerUnavailable` if a later attempt with all tokens may help;
    ///   `providerMisconfigured` if none does.
    package func end(_ tokens: IssuedTokens) async throws(IdentityError) {
        let deadline = clock.now() + Self.longestEnd
        var (outage, refusal): (IdentityError?, IdentityError?)
        for (request, check) in try await providerToEnd().stepsToEnd(tokens) {
            do throws(IdentityError) {
                try check(await send(request, until: deadline))
            } catch {
                if error.code == .providerUnavailable { outage = outage ?? error } else { refusal = refusal ?? error }
            }
        }
        if let error = outage ?? refusal { throw error }
    }

    /// The pauses between the attempts to revoke discarded tokens: those of the broker's outbox, up to the likely
    /// lifetime of this process.
    private static let pausesOfDiscard: [Duration] = [.seconds(5), .seconds(30), .seconds(120), .seconds(600)]
    /// The most discards that may wait for a later attempt. Beyond this, each gets one attempt.
    private static let mostDiscarded = 32

    /// Revokes unused tokens and ends their session in the background. Retries only while this process lives, because
    /// nothing is saved.
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

    /// Whether the end is final: it succeeded, or no later attempt would help.
    private func isEnded(_ tokens: IssuedTokens) async -> Bool {
        do throws(IdentityError) {
            try await end(tokens)
            return true
        } catch {
            return error.code != .providerUnavailable
        }
    }

    /// The provider with its metadata. An error without the metadata is no refusal to end the session, so every such
    /// error becomes `providerUnavailable`.
    private func providerToEnd() async throws(IdentityError) -> ProviderClient {
        do throws(IdentityError) {
            return try await provider()
        } catch {
            throw error.code == .providerUnavailable ? error : IdentityError(.providerUnavailable, error.description)
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
