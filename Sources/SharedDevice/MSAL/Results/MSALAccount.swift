import SharedDevice

/// A person's account on this device, as the broker knows it. Two are equal when their identifiers are.
public final class MSALAccount: Sendable, Hashable, CustomStringConvertible {
    let account: Account
    /// What ``MSALPublicClientApplication/cleanupDone(of:)`` acknowledges: the sessions whose data must go.
    let debt: AccountChange?

    init(_ account: Account, debt: AccountChange? = nil) {
        self.account = account
        self.debt = debt
    }

    /// The name that the person signs in with.
    public var username: String? { account.username }
    /// The account's identity: object id and tenant id, joined by a dot.
    public var identifier: String? { account.identifier }
    /// The identity in its parts.
    public var homeAccountId: MSALAccountId? { MSALAccountId(account.identifier) }
    /// What the broker says of the person: `preferred_username`, `oid`, `tid`, and `name` where it has one.
    public var accountClaims: [String: Any]? {
        let id = MSALAccountId(account.identifier)
        var claims = ["preferred_username": account.username, "oid": id.objectId, "tid": id.tenantId]
        if let name = account.displayName { claims["name"] = name }
        return claims
    }
    /// Whether the account came from the broker: always.
    public var isSSOAccount: Bool { true }

    /// Whether this app still has to delete what it holds of this account's earlier stay, and to report it. Of the previous account, as
    /// ``MSALPublicClientApplication/getCurrentAccount(with:completionBlock:)`` gives it; false of any other. Beyond MSAL: it is true
    /// also where the same person has come back, which no comparison with the current account shows.
    public var needsCleanup: Bool { debt != nil }

    /// Name and identity.
    public var description: String { "MSALAccount(\(account.username), \(account.identifier))" }

    /// Whether both are the same account.
    public static func == (left: MSALAccount, right: MSALAccount) -> Bool { left.account == right.account }

    /// Feeds what `==` compares.
    public func hash(into hasher: inout Hasher) { hasher.combine(account) }
}
