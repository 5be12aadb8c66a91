public import FoundationEssentials

/// A token for the current account.
public struct TokenResult: Sendable {
    /// The token. Keep it in memory only, and drop it when the account changes.
    public let accessToken: String
    /// When it ends.
    public let expiresOn: Date
    /// What it is good for.
    public let scopes: [String]
    /// Whose it is.
    public let account: Account
}
