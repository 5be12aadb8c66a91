package import HTTPClient
package import Identity
import StrictJSON

/// What became of a refresh.
package enum RefreshOutcome: Sendable {
    /// New tokens; a new refresh token is to be on the disk before the access token is handed out.
    case renewed(TokenAnswer)
    /// The provider's session is over.
    case sessionOver
    /// The provider wants the person; only the same person completes it.
    case reauthenticationNeeded
    /// The configuration is wrong: an administrator has to act. The session stays.
    case misconfigured(SignInError)
    /// This request asked for too much. The session stays.
    case scopeRefused
    /// Nothing is known. The session stays, within its grace. Where the server may have carried the refresh out all the same, the token may be used
    /// up, which the next refresh has to know.
    case unavailable(SignInError, tokenMayBeUsed: Bool)
}

/// A refresh of tokens (RFC 6749, section 6). A value that decides; somebody else asks, one at a time: at a reuse of a refresh token, providers revoke
/// all of its family.
package struct RefreshFlow: Sendable {
    package enum Effect: Sendable {
        /// To be sent; its outcome is handled.
        case send(HTTPRequest)
        case finished(RefreshOutcome)
    }

    private let client: ProviderClient
    private let token: Secret
    private let scopes: [String]
    /// Whether an answer may have been lost, so that the token may be used up.
    private var mayBeUsed: Bool
    /// Whether one of this refresh's own was lost, which nobody else knows.
    private var isRepeated = false

    /// - Parameters:
    ///   - scopes: none for those of before.
    ///   - mayBeUsed: whether an attempt of before had no answer, for instance because this program ended.
    package init(_ client: ProviderClient, token: Secret, scopes: [String] = [], mayBeUsed: Bool = false) {
        self.client = client
        self.token = token
        self.scopes = scopes
        self.mayBeUsed = mayBeUsed
    }

    /// The request that it begins with.
    package func begin() -> HTTPRequest {
        var form = [("grant_type", "refresh_token"), ("refresh_token", token.text)]
        if !scopes.isEmpty { form.append(("scope", scopes.joined(separator: " "))) }
        return client.request(client.metadata.tokenEndpoint, form)
    }

    /// What follows from an answer, or from none. A lost answer is asked for once more with the old token.
    package mutating func handle(_ result: Result<HTTPResponse, HTTPError>) -> Effect {
        switch result {
        case .failure(let error):
            guard error.mayHaveArrived, !mayBeUsed else {
                return .finished(.unavailable(SignInError(error, client.issuer), tokenMayBeUsed: mayBeUsed))
            }
            (mayBeUsed, isRepeated) = (true, true)
            return .send(begin())
        case .success(let response):
            return .finished(meaning(of: EndpointAnswer(response), response))
        }
    }

    private func meaning(of answer: EndpointAnswer, _ response: HTTPResponse) -> RefreshOutcome {
        switch answer {
        case .granted(let json):
            do throws(SignInError) {
                return .renewed(try TokenAnswer(json, issuer: client.issuer))
            } catch {
                return .unavailable(error, tokenMayBeUsed: true)
            }
        case .error("interaction_required", _), .error("login_required", _): return .reauthenticationNeeded
        case .error("invalid_client", _), .error("unauthorized_client", _):
            return misconfigured(.unknownClient(client.issuer))
        case .error("invalid_scope", _):
            // Who asked knows of a loss of before. To have this one known is worth more than the reason, which the next request brings.
            return isRepeated ? misconfigured(refuses("invalid_scope")) : .scopeRefused
        // It may be our own reuse, which says nothing of the person.
        case .error("invalid_grant", _), .empty(400), .empty(401):
            return mayBeUsed ? .reauthenticationNeeded : .sessionOver
        case .error(let word, _):
            return misconfigured(refuses(word.printable(64)))
        case .empty(let status):
            return misconfigured(refuses("status \(status)"))
        case .unusable(let reason):
            // 429 is said before anything is done.
            return .unavailable(
                .unusableNow(client.issuer, reason, response.retryAfter),
                tokenMayBeUsed: mayBeUsed || response.status != 429
            )
        }
    }

    private func refuses(_ word: String) -> SignInError {
        .misconfigured(client.issuer, "refuses to refresh (\(word))")
    }

    /// A server that refuses the client has not looked at the token: where that may be used up, it still may.
    private func misconfigured(_ error: SignInError) -> RefreshOutcome {
        mayBeUsed ? .unavailable(error, tokenMayBeUsed: true) : .misconfigured(error)
    }
}

extension HTTPError {
    /// Whether the server may have carried out what it was asked, although there is no answer.
    fileprivate var mayHaveArrived: Bool {
        switch reason {
        case .timedOut, .brokenOff, .tooLarge, .redirected, .encoded, .cancelled: true
        case .unreachable, .untrusted, .busy, .invalidRequest: false
        }
    }
}
