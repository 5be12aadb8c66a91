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

    let end: Date
    let json: JSONValue

    /// - Parameter issuer: Also the audience of a token without a service, which any service on this device may accept.
    /// - Throws: `invalidScope` for scopes of several services: each could use the token at the other services.
    init(issuer: String, subject: String, scopes: Set<String>, at now: Date) throws(IdentityError) {
        let services = Set(scopes.compactMap(AccessToken.service(ofScope:))).sorted()
        guard services.count <= 1 else {
            throw IdentityError(
                .invalidScope,
                "the scopes are of several services, \(services.joined(separator: ", ")); ask for a token of each"
            )
        }
        let start = Double(Int(now.timeIntervalSince1970))
        end = Date(timeIntervalSince1970: start + EmbeddedIdentityProvider.tokenLifetime)
        json = .object([
            "iss": .string(issuer), "sub": .string(subject), "aud": .string(services.first ?? issuer),
            "client_id": .string(Self.client), "scope": .string(scopes.sorted().joined(separator: " ")),
            "iat": .number(start), "exp": .number(end.timeIntervalSince1970), "jti": .string(Base64URL.random(16)),
        ])
    }
}
