import Basics
package import HTTPClient
package import Identity

package enum RefreshOutcome: Sendable {
    /// New tokens. A new refresh token must be on the disk before the access token is handed out.
    case renewed(TokenAnswer)
    case sessionOver
    /// The person has to sign in again; only the same person can complete that sign-in.
    case reauthenticationNeeded
    /// The configuration is wrong: an administrator has to act. The session stays.
    case misconfigured(IdentityError)
    /// The provider refuses the scopes of this request. The session stays.
    case scopeRefused
    /// The outcome is unknown. The session stays, within its grace period. If the server may have carried out the
    /// refresh, the token may be used up, and the next refresh has to know that.
    case unavailable(IdentityError, tokenMayBeUsed: Bool)
}

/// A refresh of tokens (RFC 6749, section 6). A state machine; the caller sends the requests, one at a time: providers
/// revoke the whole token family if a refresh token is used twice.
package struct RefreshFlow: Sendable {
    package enum Effect: Sendable {
        /// The outcome is passed to ``handle(_:)``.
        case send(HTTPRequest)
        case finished(RefreshOutcome)
    }

    private let client: ProviderClient
    private let token: Secret
    private let scopes: [String]
    /// Whether a response may have been lost, so that the token may be used up.
    private var mayBeUsed: Bool
    /// Whether a response of this refresh itself was lost. The caller does not know of that loss.
    private var isRepeated = false

    /// - Parameters:
    ///   - scopes: The scopes of the token; empty to keep the scopes of the sign-in.
    ///   - mayBeUsed: Whether an earlier attempt had no response, for instance because this program ended.
    package init(_ client: ProviderClient, token: Secret, scopes: [String] = [], mayBeUsed: Bool = false) {
        self.client = client
        self.token = token
        self.scopes = scopes
        self.mayBeUsed = mayBeUsed
    }

    package func begin() -> HTTPRequest {
        var form = [("grant_type", "refresh_token"), ("refresh_token", token.text)]
        if !scopes.isEmpty { form.append(("scope", scopes.joined(separator: " "))) }
        return client.request(client.metadata.tokenEndpoint, form)
    }

    /// The effect of a response, or of a lost one. After a loss, the request is repeated once with the old token.
    package mutating func handle(_ result: Result<HTTPResponse, HTTPError>) -> Effect {
        switch result {
        case .failure(let error):
            guard error.mayHaveArrived, !mayBeUsed else {
                return .finished(.unavailable(IdentityError(error, client.issuer), tokenMayBeUsed: mayBeUsed))
            }
            (mayBeUsed, isRepeated) = (true, true)
            return .send(begin())
        case .success(let response): return .finished(meaning(of: EndpointAnswer(response), response))
        }
    }

    private func meaning(of answer: EndpointAnswer, _ response: HTTPResponse) -> RefreshOutcome {
        switch answer {
        case .granted(let json):
            do throws(IdentityError) {
                return .renewed(try TokenAnswer(json, issuer: client.issuer))
            } catch {
                return .unavailable(error, tokenMayBeUsed: true)
            }
        case .error("interaction_required", _), .error("login_required", _): return .reauthenticationNeeded
        case .error("invalid_client", _), .error("unauthorized_client", _):
            return misconfigured(.unknownClient(client.issuer))
        case .error("invalid_scope", _):
            // After a loss in this refresh, the caller must learn of the loss. That matters more than the scopes, which
            // the next request reports again. The caller knows of earlier losses itself.
            return isRepeated ? misconfigured(refuses("invalid_scope")) : .scopeRefused
        // The error may come from our own reuse of the token, which tells nothing about the person.
        case .error("invalid_grant", _), .empty(400), .empty(401):
            return mayBeUsed ? .reauthenticationNeeded : .sessionOver
        case .error(let word, _):
            return misconfigured(refuses(word.printable(64)))
        case .empty(let status):
            return misconfigured(refuses("status \(status)"))
        case .unusable(let reason):
            // A server sends 429 before it processes the request.
            return .unavailable(
                .unusableNow(client.issuer, reason, response.retryAfter),
                tokenMayBeUsed: mayBeUsed || response.status != 429
            )
        }
    }

    private func refuses(_ word: String) -> IdentityError {
        .misconfigured(client.issuer, "refuses to refresh (\(word))")
    }

    /// A server that refuses the client has not looked at the token. If the token may have been used up before, that is
    /// still unknown.
    private func misconfigured(_ error: IdentityError) -> RefreshOutcome {
        mayBeUsed ? .unavailable(error, tokenMayBeUsed: true) : .misconfigured(error)
    }
}

extension HTTPError {
    /// Whether the server may have carried out the request, although there is no response.
    fileprivate var mayHaveArrived: Bool {
        switch reason {
        case .timedOut, .brokenOff, .tooLarge, .redirected, .encoded, .cancelled: true
        case .unreachable, .untrusted, .busy, .invalidRequest: false
        }
    }
}
