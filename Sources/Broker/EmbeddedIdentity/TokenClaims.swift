import Basics
import Cryptography
import FoundationEssentials
import Identity

/// The claims of a token of the device's own directory: the JWT profile for access tokens (RFC 9068, section 2.2).
struct TokenClaims {
    /// `typ` of the header: it keeps ID tokens and logout tokens from passing for an access token.
    static let type = "at+jwt"
    /// The client of all tokens: the broker, which hands them to the apps.
    static let client = "shared-device"

    private let issuer: String
    private let subject: String
    private let audience: String
    private let scopes: Set<String>
    private let start: Int
    /// Unique for each token.
    private let identifier: String

    /// - Parameter issuer: Also the audience of a token without a service. Any service on this device may accept such a
    ///   token.
    /// - Throws: `IdentityError`: `invalidScope` for scopes of several services, because each service could use the
    ///   token at the other services.
    init(issuer: String, subject: String, scopes: Set<String>, at now: Date) throws(IdentityError) {
        let services = Set(scopes.compactMap(AccessToken.service(ofScope:))).sorted()
        guard services.count <= 1 else {
            throw IdentityError(
                .invalidScope,
                "the scopes are of several services, \(services.joined(separator: ", ")); ask for a token of each"
            )
        }
        self.issuer = issuer
        self.subject = subject
        self.scopes = scopes
        audience = services.first ?? issuer
        start = Int(now.timeIntervalSince1970)
        identifier = Base64URL.random(16)
    }

    var end: Date { Date(timeIntervalSince1970: Double(start) + EmbeddedIdentityProvider.tokenLifetime) }

    var json: JSONValue {
        .object([
            "iss": .string(issuer), "sub": .string(subject), "aud": .string(audience),
            "client_id": .string(Self.client), "scope": .string(scopes.sorted().joined(separator: " ")),
            "iat": .number(Double(start)), "exp": .number(end.timeIntervalSince1970), "jti": .string(identifier),
        ])
    }
}
