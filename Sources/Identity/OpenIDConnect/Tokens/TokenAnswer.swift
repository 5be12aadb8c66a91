package import HTTPClient
package import Identity
package import StrictJSON

/// What a token endpoint has granted (RFC 6749, section 5.1). The ID token in it is not checked yet.
package struct TokenAnswer: Sendable {
    package let accessToken: Secret
    /// `nil` where the provider gives none, or leaves the old one in force.
    package let refreshToken: Secret?
    /// As it came.
    package private(set) var idToken: String?
    /// What was granted; `nil` where the answer does not say it, which means all that was asked for.
    package let scopes: Set<String>?
    /// How long the access token counts, from now on.
    package let lifetime: Duration

    /// For a provider that does not say it.
    private static let usualLifetime = 300.0

    /// - Throws: `SignInError`: `providerMisconfigured` for what is no such answer.
    package init(_ json: JSONValue, issuer: Issuer) throws(SignInError) {
        func token(_ name: String) throws(SignInError) -> String? {
            // Some write null for what they do not give.
            guard let value = json[name], value != .null else { return nil }
            guard let text = value.string, !text.isEmpty, text.utf8.allSatisfy({ $0 >= 0x20 && $0 < 0x7F }) else {
                throw .unusable(issuer, JSONValue.flaw(value, "“\(name)”", "a token"))
            }
            return text
        }
        guard let access = try token("access_token") else {
            throw .unusable(issuer, "“access_token” is missing")
        }
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
        // Some write the number as a text.
        let seconds = json["expires_in"].flatMap { $0.number ?? $0.string.flatMap(Double.init) } ?? Self.usualLifetime
        guard seconds >= 0, seconds.isFinite else { throw .unusable(issuer, "“expires_in” is no time") }
        lifetime = .seconds(min(seconds, 366 * 86_400))
    }

    /// The same as from a provider that gives no ID token.
    var withoutIDToken: TokenAnswer {
        var answer = self
        answer.idToken = nil
        return answer
    }

    /// RFC 6749, section 3.3: a text of scopes with blanks between. Without one, all is granted that was asked for (section 5.1); what is of any other form
    /// must not pass for that.
    private static func scopes(_ value: JSONValue?, _ issuer: Issuer) throws(SignInError) -> Set<String>? {
        guard let value, value != .null else { return nil }
        guard let scopes = value.string?.split(separator: " ").map(String.init), scopes.allSatisfy(AccessToken.isScope)
        else { throw .unusable(issuer, JSONValue.flaw(value, "“scope”", "a text of scopes")) }
        return Set(scopes)
    }
}

/// An answer in JSON: what was granted, or an error by its word.
package enum EndpointAnswer: Sendable, Hashable {
    case granted(JSONValue)
    /// OAuth's error (RFC 6749, section 5.2).
    case error(String, status: Int)
    /// A refusal with nothing in it, as glewlwyd gives.
    case empty(status: Int)
    /// The server works at something else: overload, failures, pages for people, nonsense.
    case unusable(String)

    package init(_ response: HTTPResponse) {
        let json: JSONValue?
        var flaw = "JSON that means nothing"
        do throws(JSONError) {
            json = try JSONValue(parsing: response.body, limits: JSONLimits(size: 1024 * 1024))
        } catch {
            (json, flaw) = (nil, "what is not JSON: \(error)")
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
}
