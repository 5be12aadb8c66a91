import Basics
public import SharedDevice
// The standard library's normal forms. swift-foundation uses them too, and its own functions for this need all of ICU.
@_spi(_Unicode) import Swift

/// Authenticates people and issues the tokens that their apps request: the embedded directory, or an organisation's
/// OpenID Connect provider. The broker calls it without a lock held, from any task, several calls at a time. A provider
/// keeps no state about who is signed in.
public protocol IdentityProvider: Sendable {
    /// Authenticates the person who signs in.
    ///
    /// - Throws: `IdentityError`: `invalidGrant`, `accountDisabled`, `slowDown`, `interactionRequired`, `busy`,
    ///   `providerFailed`. The broker then refuses the sign-in.
    func authenticate(_ request: SignInRequest) async throws(IdentityError) -> AuthenticatedIdentity

    /// Issues an access token for an account that was authenticated before, perhaps by an earlier run of the broker.
    /// Checks again whether the account exists and may sign in.
    ///
    /// - Throws: `IdentityError`: `accountUnknown`, `accountDisabled`, `invalidScope`, `interactionRequired`,
    ///   `providerFailed`.
    func issueToken(for account: Account, scopes: Set<String>) async throws(IdentityError) -> AccessToken

    /// Whether a person can sign in with a badge. Blocks its thread for the database.
    var takesBadges: Bool { get }

    /// The public keys that services check its tokens with, as a JWK set (RFC 7517); `nil` if services get them from
    /// the provider. Never blocks.
    var signingKeys: String? { get }
}

/// The input with which a person signs in.
public enum SignInRequest: Sendable {
    /// The password is `nil` if the caller has sent none.
    case password(username: String, Secret?)
    /// The number that a reader has read from a badge, and the PIN of the badge's owner.
    case badge(number: Secret, pin: Secret)
    /// The PIN of the person whose session is locked.
    case pin(username: String, Secret)

    public init(username: String, password: Secret? = nil) { self = .password(username: username, password) }

    /// The name that the person has given; `nil` for a badge.
    public var username: String? {
        switch self {
        case .password(let username, _), .pin(let username, _): username
        case .badge: nil
        }
    }
}

/// The longest username, in bytes of UTF-8.
public let longestUsername = 256

/// The form in which two usernames are compared: it ignores case, and how Unicode composes a letter.
public func usernameKey(_ name: String) -> String { name.composed.lowercased() }

extension String {
    /// The text in Unicode's normal form C: a letter with its accents is one scalar if Unicode has such a scalar.
    public var composed: String {
        var scalars = UnicodeScalarView()
        scalars.append(contentsOf: _nfc)
        return String(scalars)
    }
}

public struct AuthenticatedIdentity: Sendable {
    public let account: Account
    /// Whether the person may join devices to the organisation and make them leave it.
    public let isAdministrator: Bool
    public let groups: PersonGroups

    public init(account: Account, isAdministrator: Bool = false, groups: PersonGroups = .none) {
        (self.account, self.isAdministrator, self.groups) = (account, isAdministrator, groups)
    }
}

/// The groups of a person, as the directory or the provider has reported them when the person authenticated.
public enum PersonGroups: Sendable, Hashable {
    case known(Set<String>)
    case unknown(Flaw)

    /// Why the groups are not known. The raw values go over the wire.
    public enum Flaw: String, Sendable, Hashable {
        /// The provider has them at another place, and not in the ID token.
        case elsewhere
        /// They do not have the form of a list of names, or they exceed a limit.
        case malformed
    }

    public static let none = PersonGroups.known([])

    /// The highest number of groups, the longest name, and the longest list in all, in bytes of UTF-8.
    public static let (most, longestName, longestList) = (1000, 1024, 65_536)

    /// The groups in a list from another process. A name with an invisible character is left out: no rule can name it.
    public init(listed names: [String]) {
        let isFine =
            names.count <= Self.most && names.allSatisfy { (1...Self.longestName).contains($0.utf8.count) }
            && names.reduce(0, { $0 + $1.utf8.count }) <= Self.longestList
        let visible = names.filter { !$0.unicodeScalars.contains(where: \.isInvisible) }
        self = isFine ? .known(Set(visible)) : .unknown(.malformed)
    }

    /// The names; none if they are not known.
    public var names: Set<String> { if case .known(let names) = self { names } else { [] } }
    public var flaw: Flaw? { if case .unknown(let flaw) = self { flaw } else { nil } }
}

/// The reason why an authentication failed or no token was issued.
public struct IdentityError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The raw values go over the wire: they are the words of OAuth or OpenID Connect, if those have one.
    public enum Code: String, Sendable {
        /// No user has this name and this password, or this badge and this PIN. The response does not tell which of the
        /// two is wrong.
        case invalidGrant = "invalid_grant"
        /// The name and password are right, but the user may not sign in.
        case accountDisabled = "account_disabled"
        /// The account no longer exists.
        case accountUnknown = "account_unknown"
        /// Too many attempts; ``IdentityError/retryAfter`` has the time to wait.
        case slowDown = "slow_down"
        /// Too many people are signing in at this moment.
        case busy = "temporarily_unavailable"
        /// The person has to authenticate: the password is missing, or the session has ended.
        case interactionRequired = "interaction_required"
        /// OAuth does not allow this scope.
        case invalidScope = "invalid_scope"
        case providerFailed = "server_error"
        /// The provider cannot be reached, or does not work at the moment.
        case providerUnavailable = "provider_unavailable"
        /// The configuration and the provider do not match.
        case providerMisconfigured = "provider_misconfigured"
        case loginExpired = "login_expired"
        case userCanceled = "user_canceled"
        /// The provider's response cannot be trusted.
        case authenticationFailed = "authentication_failed"
    }

    public let code: Code
    /// The cause and the remedy.
    public let description: String
    /// For `slowDown`: how long further attempts are refused from now on. For `providerUnavailable`: the provider's
    /// `Retry-After`, at most 300 s; `nil` if the provider sent none.
    public let retryAfter: Duration?

    /// An error with a text for people. The text must not reveal what `code` hides.
    public init(_ code: Code, _ description: String, retryAfter: Duration? = nil) {
        (self.code, self.description, self.retryAfter) = (code, description, retryAfter)
    }
}

extension IdentityError {
    public static let invalidGrant = IdentityError(
        .invalidGrant,
        "the user name or the password is wrong; check both and try again"
    )
    public static let invalidBadge = IdentityError(
        .invalidGrant,
        "the badge or the PIN is wrong; show the badge again and type its owner's PIN"
    )
    public static let invalidPIN = IdentityError(.invalidGrant, "the PIN is wrong; check it and try again")
    public static let accountDisabled = IdentityError(
        .accountDisabled,
        "this account may not sign in; ask the device's administrator to enable it"
    )
    public static let accountUnknown = IdentityError(
        .accountUnknown,
        "the account does not exist any more; sign it out of this device"
    )
    public static let passwordRequired = IdentityError(
        .interactionRequired,
        "signing in needs a password; ask the person for it"
    )
    public static let busy = IdentityError(.busy, "too many people are signing in at this moment; try again")

    public static func slowDown(_ wait: Duration) -> IdentityError {
        // Rounded up, so that waiting for the whole seconds is long enough.
        let seconds = wait.components.seconds + (wait.components.attoseconds > 0 ? 1 : 0)
        return IdentityError(
            .slowDown,
            "too many wrong passwords or PINs for this user name or badge; try again in \(seconds) s",
            retryAfter: wait
        )
    }

    public static func invalidScope(_ scope: String) -> IdentityError {
        IdentityError(
            .invalidScope,
            "\(scope.debugDescription) is no OAuth scope; use visible ASCII characters other than \" and \\"
        )
    }
}
