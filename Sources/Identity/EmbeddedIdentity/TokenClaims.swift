import FoundationEssentials
import Identity
import JSONWebSignature
import StrictJSON

/// What a token of the device's own directory says: the claims of the JWT profile for access tokens (RFC 9068, section 2.2).
struct TokenClaims {
    /// `typ` of the header: an ID token or a logout token does not pass for one.
    static let type = "at+jwt"
    /// To whom all tokens are issued: the broker, which gives each app its own.
    static let client = "shared-device"

    private let issuer: String
    private let subject: String
    private let audience: String
    private let scopes: Set<String>
    private let start: Int
    /// Unlike that of any other token.
    private let identifier: String

    /// - Parameter issuer: the audience, too, of a token that is for no service in particular: any on this device may take it.
    /// - Throws: `IdentityError`: `invalidScope` for scopes of several services, because each could use the token against the others.
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
        var generator = SystemRandomNumberGenerator()
        identifier = Base64URL.encode((0..<16).map { _ in UInt8.random(in: .min ... .max, using: &generator) })
    }

    /// When the token ends.
    var end: Date { Date(timeIntervalSince1970: Double(start) + EmbeddedIdentityProvider.tokenLifetime) }

    var json: JSONValue {
        .object([
            "iss": .string(issuer), "sub": .string(subject), "aud": .string(audience),
            "client_id": .string(Self.client), "scope": .string(scopes.sorted().joined(separator: " ")),
            "iat": .number(Double(start)), "exp": .number(end.timeIntervalSince1970), "jti": .string(identifier),
        ])
    }
}
