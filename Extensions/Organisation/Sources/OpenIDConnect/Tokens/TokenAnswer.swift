package import Basics
package import HTTPClient
package import Identity

/// The response of a token endpoint (RFC 6749, section 5.1). Its ID token is not checked yet.
package struct TokenAnswer: Sendable {
    package let accessToken: Secret
    /// `nil` if the provider issued none, or if the old one stays valid.
    package let refreshToken: Secret?
    /// As received.
    package private(set) var idToken: String?
    /// The granted scopes; `nil` if the response has none, which means all requested scopes.
    package let scopes: Set<String>?
    /// The lifetime of the access token, from now on.
    package let lifetime: Duration

    /// Used if the provider sends no `expires_in`.
    private static let usualLifetime = 300.0

    /// - Throws: `IdentityError`: `providerMisconfigured` if the response is malformed.
    package init(_ json: JSONValue, issuer: Issuer) throws(IdentityError) {
        func token(_ name: String) throws(IdentityError) -> String? {
            // Some providers send null for a missing token.
            guard let value = json[name], value != .null else { return nil }
            guard let text = value.string, !text.isEmpty, text.utf8.allSatisfy({ $0 >= 0x20 && $0 < 0x7F }) else {
                throw .unusable(issuer, JSONValue.flaw(value, "“\(name)”", "a token"))
            }
            return text
        }
        guard let access = try token("access_token") else { throw .unusable(issuer, "“access_token” is missing") }
        guard let type = json["token_type"]?.string else {
            throw .unusable(issuer, JSONValue.flaw(json["token_type"], "“token_type”", "a text"))
        }
        guard type.lowercased() == "bearer" else {
            throw .misconfigured(issuer, "issues tokens of the type \(type.quoted)")
        }
        accessToken = Secret(access)
        refreshToken = try token("refresh_token").map { Secret($0) }
        idToken = try token("id_token")
        scopes = try Self.scopes(json["scope"], issuer)
        // Some providers send the number as a string.
        let seconds = json["expires_in"].flatMap { $0.number ?? $0.string.flatMap(Double.init) } ?? Self.usualLifetime
        guard seconds >= 0, seconds.isFinite else { throw .unusable(issuer, "“expires_in” is no time") }
        lifetime = .seconds(min(seconds, 366 * 86_400))
    }

    /// The response without its ID token.
    var withoutIDToken: TokenAnswer {
        var answer = self
        answer.idToken = nil
        return answer
    }

    /// The scopes, separated by spaces (RFC 6749, section 3.3). A missing value means that all requested scopes are
    /// granted (section 5.1), so any other form must be rejected.
    private static func scopes(_ value: JSONValue?, _ issuer: Issuer) throws(IdentityError) -> Set<String>? {
        guard let value, value != .null else { return nil }
        guard let scopes = value.string?.split(separator: " ").map(String.init), scopes.allSatisfy(AccessToken.isScope)
        else { throw .unusable(issuer, JSONValue.flaw(value, "“scope”", "a text of scopes")) }
        return Set(scopes)
    }
}

/// A JSON response: the granted object, or an error code.
package enum EndpointAnswer: Sendable, Hashable {
    case granted(JSONValue)
    /// OAuth's error (RFC 6749, section 5.2).
    case error(String, status: Int)
    /// A refusal with an empty body, as glewlwyd sends.
    case empty(status: Int)
    /// Anything else: overload, a server failure, an HTML page, malformed JSON.
    case unusable(String)

    package init(_ response: HTTPResponse) {
        let json: JSONValue?
        var flaw = "JSON without the expected members"
        do throws(JSONError) {
            json = try JSONValue(parsing: response.body, limits: JSONLimits(size: 1024 * 1024))
        } catch {
            (json, flaw) = (nil, "a body that is not JSON: \(error)")
        }
        switch (response.status, json) {
        case (429, _), (500..., _): self = .unusable("status \(response.status)")
        case (200..<300, let json?) where json.object != nil: self = .granted(json)
        case (400..<500, let json?) where json["error"]?.string != nil:
            self = .error(json["error"]?.string ?? "", status: response.status)
        case (400..<500, _) where response.body.isEmpty: self = .empty(status: response.status)
        default: self = .unusable("status \(response.status), and \(flaw)")
        }
    }

    /// The error for an answer that does not grant the request.
    ///
    /// - Parameter refusal: What the provider does, for the message.
    func error(_ refusal: String, _ response: HTTPResponse, _ issuer: Issuer) -> IdentityError {
        switch self {
        case .error("invalid_client", _), .error("unauthorized_client", _): .unknownClient(issuer)
        case .error("invalid_scope", _): .scopesRefused(issuer)
        case .error(let word, _): .misconfigured(issuer, "\(refusal) (\(word.printable(64)))")
        case .granted, .empty: .misconfigured(issuer, "\(refusal) (status \(response.status))")
        case .unusable(let reason): .unusableNow(issuer, reason, response.retryAfter)
        }
    }
}
