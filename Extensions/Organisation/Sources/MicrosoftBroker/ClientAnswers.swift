import Basics
import FoundationEssentials
import SharedDevice

enum ClientAnswers {
    /// - Parameter account: `nil` if no user is signed in.
    static func accounts(_ account: Account?) -> JSONValue {
        .object(["accounts": .array(account.map { [self.account($0)] } ?? [])])
    }

    /// A client that misses one of these members discards the account and uses the network itself.
    static func account(_ account: Account, claims: JSONValue? = nil) -> JSONValue {
        let name = claims?["name"]?.string ?? account.displayName ?? account.username
        return .object([
            "environment": .string("login.windows.net"), "homeAccountId": .string(account.identifier),
            "localAccountId": .string(localIdentifier(account)), "realm": .string(account.tenantIdentifier),
            "username": .string(account.username), "name": .string(name),
            "givenName": .string(claims?["given_name"]?.string ?? name),
            "familyName": .string(claims?["family_name"]?.string ?? ""), "passwordExpiry": .number(0),
            "clientInfo": .string(clientInformation(account)),
        ])
    }

    private static func localIdentifier(_ account: Account) -> String {
        String(account.identifier.prefix { $0 != "." })
    }

    private static func clientInformation(_ account: Account) -> String {
        let json: JSONValue = .object([
            "uid": .string(localIdentifier(account)), "utid": .string(account.tenantIdentifier),
        ])
        return Data(json.text.utf8).base64EncodedString()
            .replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
    }

    /// A token that expires soon, to bound how long a sign-out can go unnoticed.
    ///
    /// - Parameter requested: the scopes by the client's names. A client treats missing scopes as declined.
    /// - Throws: `BrokerFailure` with `incorrectConfiguration` if the provider's ID token is missing, or lacks claims
    ///   that clients need.
    static func token(_ token: TokenResult, requested: [String], now: Date) throws(BrokerFailure) -> JSONValue {
        guard let identity = token.idToken else {
            throw BrokerFailure(
                .incorrectConfiguration,
                "the device has no ID token that this program may pass on. Microsoft's clients need an ID token of their provider: set "
                    + "\"identity\": \"oidc\". The manifest of \(BrokerContract.application) must have in scopes those of openid, profile, "
                    + "email, address and phone that the sign-in is granted"
            )
        }
        guard let claims = claims(of: identity) else {
            throw BrokerFailure(.incorrectConfiguration, "the provider's ID token cannot be read")
        }
        guard claims["preferred_username"]?.string?.isEmpty == false else {
            throw BrokerFailure(
                .incorrectConfiguration,
                "the provider's ID token has no preferred_username; add the scope profile to oidcScopes"
            )
        }
        let end = min(token.expiresOn.timeIntervalSince1970, now.timeIntervalSince1970 + BrokerContract.tokenLifetime)
        let milliseconds = JSONValue.number((end * 1000).rounded(.down))
        return .object([
            "brokerTokenResponse": .object([
                "accessToken": .string(token.accessToken), "accessTokenType": .number(0),
                "clientInfo": .string(clientInformation(token.account)), "idToken": .string(identity),
                "expiresOn": milliseconds, "extendedExpiresOn": milliseconds,
                "grantedScopes": .string(requested.joined(separator: " ")),
                "account": account(token.account, claims: claims),
            ])
        ])
    }

    /// Decodes the claims of an ID token without a check of its signature: the broker has verified it.
    private static func claims(of token: String) -> JSONValue? {
        let parts = token.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 3, token.utf8.count <= BrokerContract.limits.size else { return nil }
        let text = String(parts[1]).replacing("-", with: "+").replacing("_", with: "/")
        let padded = text + String(repeating: "=", count: (4 - text.utf8.count % 4) % 4)
        guard let bytes = Data(base64Encoded: padded) else { return nil }
        return try? JSONValue(parsing: [UInt8](bytes), limits: BrokerContract.limits)
    }
}
