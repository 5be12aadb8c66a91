/// A person's account on this device, as the broker knows it.
///
/// Two values are the same account when their `identifier`s are equal; the other fields are for display.
public struct Account: Sendable, Codable {
    /// The account's identity: object id and tenant id, joined by a dot (`uid.utid`), as MSAL's `homeAccountId`.
    public let identifier: String
    /// The name that the person signs in with, for instance `ada@example.com`.
    public let username: String
    /// The person's name for display; `nil` where the identity provider has none.
    public let displayName: String?

    /// An account with this identity and these names.
    public init(identifier: String, username: String, displayName: String? = nil) {
        self.identifier = identifier
        self.username = username
        self.displayName = displayName
    }

    /// The tenant's half of `identifier`; empty where it has none.
    public var tenantIdentifier: String {
        guard let dot = identifier.firstIndex(of: ".") else { return "" }
        return String(identifier[identifier.index(after: dot)...])
    }
}

extension Account: Hashable {
    /// Whether both are the same account: only `identifier` counts.
    public static func == (left: Account, right: Account) -> Bool { left.identifier == right.identifier }

    /// Feeds what `==` compares.
    public func hash(into hasher: inout Hasher) { hasher.combine(identifier) }
}
