package import SharedDevice
// The standard library's own normal forms: swift-foundation uses them, too, and its functions for the purpose need all of ICU.
@_spi(_Unicode) import Swift

/// Who can tell whether people are who they say they are, and issue the tokens that their apps ask for: the embedded
/// directory, or an organization's OpenID Connect provider.
///
/// The broker calls it without a lock held, from any task, several calls at a time. A provider keeps nothing about who is
/// signed in on the device: that is the broker's to know.
package protocol IdentityProvider: Sendable {
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
    func issueToken(for account: Account, scopes: Set<String>) async throws(IdentityError) -> AccessToken

    /// The public keys that services check its tokens with, as a JWK set (RFC 7517); `nil` where they ask the provider for them. Never blocks.
    var signingKeys: String? { get }
}

/// What a person gives to sign in.
package struct SignInRequest: Sendable {
    /// The name to sign in with; to a provider that asks the person itself, a hint.
    package let username: String
    /// The password; `nil` where the provider asks the person itself.
    package let password: Secret?

    /// A request of this name and password.
    package init(username: String, password: Secret? = nil) {
        self.username = username
        self.password = password
    }
}

/// The longest name that anybody signs in with, in bytes of UTF-8.
package let longestUsername = 256

/// What counts when two names are compared: neither case nor how Unicode composes a letter.
package func usernameKey(_ name: String) -> String { name.composed.lowercased() }

extension String {
    /// The same text in Unicode's normal form C: each letter with its accents is one scalar where there is such a one.
    package var composed: String {
        var scalars = UnicodeScalarView()
        scalars.append(contentsOf: _nfc)
        return String(scalars)
    }
}

/// Who has signed in.
package struct AuthenticatedIdentity: Sendable {
    /// The account.
    package let account: Account
    /// Whether the person may join devices to the organisation, and have them leave it.
    package let isAdministrator: Bool

    package init(account: Account, isAdministrator: Bool = false) {
        self.account = account
        self.isAdministrator = isAdministrator
    }
}

/// Why nobody was authenticated, or no token issued.
package struct IdentityError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The raw values go over the wire: OAuth's or OpenID Connect's word where they have one.
    package enum Code: String, Sendable {
        /// No user has this name and this password. The answer does not say which of the two is wrong.
        case invalidGrant = "invalid_grant"
        /// The name and password are right, and the user may not sign in.
        case accountDisabled = "account_disabled"
        /// The account does not exist any more.
        case accountUnknown = "account_unknown"
        /// Too many attempts; ``IdentityError/retryAfter`` says how long to wait.
        case slowDown = "slow_down"
        /// Too many people are signing in at this moment.
        case busy = "temporarily_unavailable"
        /// The provider needs the person: the password was not given, or the session has ended.
        case interactionRequired = "interaction_required"
        /// A scope that OAuth does not allow.
        case invalidScope = "invalid_scope"
        /// The provider failed.
        case providerFailed = "server_error"
        /// The provider cannot be reached, or does not work at the moment.
        case providerUnavailable = "provider_unavailable"
        /// Configuration and provider do not fit each other.
        case providerMisconfigured = "provider_misconfigured"
        /// The time for the sign-in is over.
        case loginExpired = "login_expired"
        /// The person does not want to.
        case userCanceled = "user_canceled"
        /// The provider's answer cannot be believed.
        case authenticationFailed = "authentication_failed"
    }

    package let code: Code
    /// What happened, and what helps.
    package let description: String
    /// With `slowDown`: how long the next attempt is refused from now on. With `providerUnavailable`: how long the provider wants to be left alone, at
    /// most 300 s; `nil` where it does not say.
    package let retryAfter: Duration?

    /// An error of this code; the text is for people, and must not tell what `code` hides.
    package init(_ code: Code, _ description: String, retryAfter: Duration? = nil) {
        self.code = code
        self.description = description
        self.retryAfter = retryAfter
    }
}

extension IdentityError {
    package static let invalidGrant = IdentityError(
        .invalidGrant,
        "the user name or the password is wrong; check both and try again"
    )
    package static let accountDisabled = IdentityError(
        .accountDisabled,
        "this account may not sign in; ask the device's administrator to enable it"
    )
    package static let accountUnknown = IdentityError(
        .accountUnknown,
        "the account does not exist any more; sign it out of this device"
    )
    package static let passwordRequired = IdentityError(
        .interactionRequired,
        "signing in needs a password; ask the person for it"
    )
    package static let busy = IdentityError(.busy, "too many people are signing in at this moment; try again")

    package static func slowDown(_ wait: Duration) -> IdentityError {
        // Rounded up, so that who waits that long has waited long enough.
        let seconds = wait.components.seconds + (wait.components.attoseconds > 0 ? 1 : 0)
        return IdentityError(
            .slowDown,
            "too many wrong passwords for this user name; try again in \(seconds) s",
            retryAfter: wait
        )
    }

    package static func invalidScope(_ scope: String) -> IdentityError {
        IdentityError(
            .invalidScope,
            "\(scope.debugDescription) is no OAuth scope; use visible ASCII characters other than \" and \\"
        )
    }
}
