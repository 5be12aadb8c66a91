public import Foundation
import SharedDevice

/// A token for the current account.
public final class MSALResult: Sendable {
    /// The token. Keep it in memory only, and drop it when the account changes.
    public let accessToken: String
    /// When it ends.
    public let expiresOn: Date?
    /// What it is good for.
    public let scopes: [String]
    /// Whose it is.
    public let account: MSALAccount
    /// The configuration's authority.
    public let authority: MSALAuthority
    /// The request's correlation id.
    public let correlationId: UUID

    init(_ token: TokenResult, authority: MSALAuthority, correlationId: UUID) {
        accessToken = token.accessToken
        expiresOn = token.expiresOn
        scopes = token.scopes
        account = MSALAccount(token.account)
        self.authority = authority
        self.correlationId = correlationId
    }

    /// Always `nil`: the broker gives no ID tokens; ``MSALAccount/accountClaims`` says who the person is.
    public var idToken: String? { nil }
    /// The tenant's half of the account's identity.
    public var tenantId: String? { account.homeAccountId?.tenantId }
    /// `Bearer`.
    public var authenticationScheme: String { "Bearer" }
    /// The value of an HTTP request's `Authorization` header.
    public var authorizationHeader: String { "\(authenticationScheme) \(accessToken)" }
}
