import Basics
import Cryptography
import FoundationEssentials
package import HTTPClient
package import Identity

/// A sign-in in the browser: authorization code with PKCE (RFC 6749, section 4.1; RFC 7636; RFC 9207). A state machine;
/// the caller sends the requests.
///
/// Only this value knows the verifier and the state, so a stolen response is useless.
package struct AuthorizationCodeFlow: Sendable {
    /// How much time the person has.
    package static let lifetime: Duration = .seconds(600)
    /// In bytes.
    package static let longestQuery = 8192

    /// Three unguessable secrets: 32 random bytes each, in base64url.
    package struct Secrets: Sendable {
        let state: String
        package let nonce: String
        let verifier: String

        init() { (state, nonce, verifier) = (Base64URL.random(32), Base64URL.random(32), Base64URL.random(32)) }

        /// The code challenge (RFC 7636, section 4.2).
        var challenge: String { Base64URL.encode(Digest.sha256.hash(Array(verifier.utf8))) }
    }

    package enum Event: Sendable {
        /// The browser came back with this query.
        case answered(String)
        /// The outcome of `exchange`.
        case exchanged(Result<HTTPResponse, HTTPError>)
        /// The person cancelled, or the caller that began the sign-in has disconnected.
        case cancelled
    }

    package enum Effect: Sendable {
        /// The outcome comes back as `exchanged`.
        case exchange(HTTPRequest)
        case finished(Result<TokenAnswer, IdentityError>)
    }

    private enum Phase {
        case waiting
        case exchanging
        case ended
    }

    package let secrets = Secrets()
    private let client: ProviderClient
    private let redirect: String
    private let deadline: ContinuousClock.Instant
    private var phase = Phase.waiting

    /// - Parameter redirect: `http://127.0.0.1:PORT/callback`; never `localhost`, which may be another machine's name.
    package init(_ client: ProviderClient, redirect: String, start: ContinuousClock.Instant) {
        self.client = client
        self.redirect = redirect
        deadline = start + Self.lifetime
    }

    /// The address that the browser opens.
    ///
    /// - Throws: `IdentityError`: `providerMisconfigured` if the provider has no authorization endpoint.
    package func address(
        scopes: [String],
        loginHint: String? = nil,
        claims: String? = nil
    ) throws(IdentityError) -> String {
        guard let endpoint = client.metadata.authorizationEndpoint else {
            throw .misconfigured(client.issuer, "names no authorization_endpoint; sign in with a device code")
        }
        var query = [
            ("response_type", "code"), ("client_id", client.credentials.identifier), ("redirect_uri", redirect),
            ("scope", scopes.joined(separator: " ")), ("state", secrets.state), ("nonce", secrets.nonce),
            ("code_challenge", secrets.challenge), ("code_challenge_method", "S256"),
            // The previous person may have left a session in the browser.
            ("prompt", "login"),
        ]
        if let loginHint { query.append(("login_hint", loginHint)) }
        if let claims { query.append(("claims", claims)) }
        return endpoint.adding(query: query)
    }

    /// The effect of an event. An event that does not fit the state, or follows `finished`, has none: a query counts
    /// once.
    package mutating func handle(_ event: Event, at now: ContinuousClock.Instant) -> Effect? {
        do throws(IdentityError) {
            switch (phase, event) {
            case (.waiting, .answered(let query)):
                guard now < deadline else { throw .expired }
                let code = try code(in: query)
                phase = .exchanging
                return .exchange(exchange(code))
            case (.exchanging, .exchanged(let result)): return finish(.success(try tokens(result)))
            case (.waiting, .cancelled), (.exchanging, .cancelled): throw .cancelled
            case (.waiting, .exchanged), (.exchanging, .answered), (.ended, _): return nil
            }
        } catch {
            return finish(.failure(error))
        }
    }

    private mutating func finish(_ result: Result<TokenAnswer, IdentityError>) -> Effect {
        phase = .ended
        return .finished(result)
    }

    // MARK: The browser's response

    private func code(in query: String) throws(IdentityError) -> String {
        guard query.utf8.count <= Self.longestQuery, let fields = FormFields.decode(query), let state = fields["state"],
            ConstantTime.areEqual(state.utf8, secrets.state.utf8)
        else { throw .anotherSignIn }
        if let name = fields["iss"] {
            guard client.issuer.isNamed(name) else { throw .issuerDiffers(name, from: client.issuer) }
        } else if client.metadata.answersHaveIssuer {
            throw .anotherSignIn
        }
        if let word = fields["error"] { throw refusal(word) }
        guard let code = fields["code"], !code.isEmpty else { throw .anotherSignIn }
        return code
    }

    private func refusal(_ word: String) -> IdentityError {
        switch word {
        case "access_denied": .cancelled
        case "temporarily_unavailable", "server_error": .unusableNow(client.issuer, "its page says \(word)")
        case "unauthorized_client": .unknownClient(client.issuer)
        case "invalid_scope": .scopesRefused(client.issuer)
        case "redirect_uri_mismatch": .redirectRefused(redirect, client.issuer)
        case "login_required", "interaction_required", "consent_required", "account_selection_required":
            IdentityError(.interactionRequired, "\(client.issuer) wants more of the person; sign in again")
        default: .misconfigured(client.issuer, "refuses the request (\(word.printable(64)))")
        }
    }

    // MARK: The exchange

    private func exchange(_ code: String) -> HTTPRequest {
        client.request(
            client.metadata.tokenEndpoint,
            [
                ("grant_type", "authorization_code"), ("code", code), ("redirect_uri", redirect),
                ("code_verifier", secrets.verifier),
            ]
        )
    }

    private func tokens(_ result: Result<HTTPResponse, HTTPError>) throws(IdentityError) -> TokenAnswer {
        let response = try result.mapError { IdentityError($0, client.issuer) }.get()
        switch EndpointAnswer(response) {
        case .granted(let json): return try TokenAnswer(json, issuer: client.issuer)
        // The code was used before, is too old, or belongs to another request. `invalid_code` is glewlwyd's word for
        // `invalid_grant`.
        case .error("invalid_grant", _), .error("invalid_code", _), .empty: throw .anotherSignIn
        case let answer: throw answer.error("refuses the code", response, client.issuer)
        }
    }
}
