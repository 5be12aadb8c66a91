public import SharedDevice

/// Who can tell whether people are who they say they are, and issue the tokens that their apps ask for: the embedded
/// directory, or an organization's OpenID Connect provider.
///
/// The broker calls it without a lock held, from any task, several calls at a time. A provider keeps nothing about who is
/// signed in on the device: that is the broker's to know.
public protocol IdentityProvider: Sendable {
    /// Finds out who is signing in.
    ///
    /// - Throws: `IdentityError`: `invalidGrant`, `accountDisabled`, `slowDown`, `interactionRequired`, `busy`,
    ///   `providerFailed`. The broker then signs nobody in.
    func authenticate(_ request: SignInRequest) async throws(IdentityError) -> AuthenticatedIdentity

    /// Issues an access token for an account that was authenticated before, perhaps by an earlier run of the broker.
    ///
    /// It asks anew whether the account still exists and may sign in: time may have passed since `authenticate`.
    ///
    /// - Parameter scopes: What the token is to permit, as OAuth scope tokens.
    /// - Throws: `IdentityError`: `accountUnknown`, `accountDisabled`, `invalidScope`, `interactionRequired`,
    ///   `providerFailed`.
    func issueToken(
        for identity: AuthenticatedIdentity,
        scopes: Set<String>
    ) async throws(IdentityError) -> AccessToken

    /// Ends what the provider itself holds open for the account, after the broker has signed it out. The device is signed
    /// out whatever comes of it.
    ///
    /// - Throws: `IdentityError`: `providerFailed` where the provider could not be told.
    func endSession(for identity: AuthenticatedIdentity) async throws(IdentityError)
}

/// What a person gives to sign in.
public struct SignInRequest: Sendable {
    /// The name to sign in with; to a provider that asks the person itself, a hint.
    public let username: String
    /// The password; `nil` where the provider asks the person itself.
    public let password: Secret?

    /// A request of this name and password.
    public init(username: String, password: Secret? = nil) {
        self.username = username
        self.password = password
    }
}

/// An account, and what its provider needs to issue tokens for it.
public struct AuthenticatedIdentity: Sendable {
    /// The account.
    public let account: Account
    /// The provider's own secret for this sign-in, for instance a refresh token; `nil` where the account is enough.
    public let session: Secret?
    /// Whether the person may join devices to the organisation, and have them leave it.
    public let isAdministrator: Bool

    /// An identity of this account and session.
    public init(account: Account, session: Secret? = nil, isAdministrator: Bool = false) {
        self.account = account
        self.session = session
        self.isAdministrator = isAdministrator
    }
}
