import Basics
import HTTPClient
package import Identity

/// Requests of the device itself, without a person.
extension OpenIDConnectClient {
    /// Requests a token for the device itself (RFC 6749, section 4.4), for the provider's other interfaces.
    ///
    /// - Throws: `IdentityError`: `providerUnavailable`, `providerMisconfigured`.
    package func clientToken(scopes: [String]) async throws(IdentityError) -> TokenAnswer {
        let provider = try await provider()
        guard provider.credentials.secret != nil else {
            throw .misconfigured(
                issuer,
                "gives no client token to a client without a secret; give the service the credential oidc-client-secret or "
                    + "shared-signals-token"
            )
        }
        var form = [("grant_type", "client_credentials")]
        if !scopes.isEmpty { form.append(("scope", scopes.joined(separator: " "))) }
        let result = await send(provider.request(provider.metadata.tokenEndpoint, form))
        let response = try result.mapError { IdentityError($0, issuer) }.get()
        let refusal = "gives this client no client token"
        switch EndpointAnswer(response) {
        case .granted(let json): return try TokenAnswer(json, issuer: issuer)
        case .error(let word, _) where word != "invalid_client":
            throw .misconfigured(
                issuer,
                "\(refusal) (\(word.printable(64))); allow it the grant client_credentials and the scopes "
                    + "\(scopes.joined(separator: " ")), or give the service the credential shared-signals-token"
            )
        case let answer: throw answer.error(refusal, response, issuer)
        }
    }

    /// Checks a security event token of a stream.
    ///
    /// - Parameter identifier: The stream's identifier for it.
    /// - Returns: The token, or the error to report to the stream. ``SignalVerdict/refused(_:_:isProviders:)`` has
    ///   `isProviders` if the signature is the provider's and the content is rejected.
    package func signal(_ text: String, identifier: String, audience: String) async -> SignalVerdict {
        do throws(IdentityError) {
            let verified = try await verify(text, as: "event token", isPatient: true)
            do throws(IdentityError) {
                let token = try SecurityEventToken(verified, issuer: issuer, audience: audience, now: clock.date())
                guard isSame(token.identifier, identifier) else {
                    return .refused(.invalidRequest, "its “jti” is another one", isProviders: true)
                }
                return .accepted(token)
            } catch {
                let isForOthers = error == .otherAudience(issuer, TokenClaims.lacks(audience))
                let reason: SignalStream.Refusal =
                    if isForOthers {
                        .invalidAudience
                    } else {
                        error.code == .providerMisconfigured ? .invalidIssuer : .invalidRequest
                    }
                let text = isForOthers ? "it is for another receiver than \(audience)" : error.description
                return .refused(reason, text, isProviders: true)
            }
        } catch {
            // A cancelled check tells nothing about the token.
            guard error.code != .providerUnavailable, error != .cancelled else { return .unknown(error.description) }
            return .refused(.invalidKey, error.description, isProviders: false)
        }
    }
}

/// The result of checking a security event token.
package enum SignalVerdict: Sendable {
    case accepted(SecurityEventToken)
    /// `isProviders`: Whether the provider has signed it.
    case refused(SignalStream.Refusal, String, isProviders: Bool)
    /// The provider's keys cannot be read at the moment, or the task was cancelled.
    case unknown(String)
}
