public import FoundationEssentials
public import SharedDevice

/// The organisation's own provider, which authenticates the person on its own page: the device sees no password. The
/// broker's reducer knows this protocol and nothing of OpenID Connect. The implementation may run in another process.
///
/// Calls may overlap. The broker runs at most one `renew` and one `end` at a time, and never both for one sign-in:
/// providers revoke all tokens of a sign-in if one of them is used twice. Every call ends by itself within a minute.
/// The provider keeps no state about signed-in people.
public protocol OrganisationProvider: Sendable {
    /// Begins a sign-in.
    ///
    /// - Throws: `IdentityError`: `providerUnavailable`, `providerMisconfigured`, `busy`.
    func begin(_ start: SignInStart) async throws(IdentityError) -> BegunSignIn

    /// Completes a sign-in in the browser.
    ///
    /// - Parameters:
    ///   - handle: ``BegunSignIn/handle``. Can be completed only once.
    ///   - query: The query of the address that the browser came back to, after the `?`; at most 8192 bytes.
    /// - Throws: `IdentityError`: `authenticationFailed`, `userCanceled`, `loginExpired`, `providerUnavailable`,
    ///   `providerMisconfigured`.
    func complete(_ handle: String, query: String) async throws(IdentityError) -> ProviderSignIn

    /// Polls a sign-in by device code. The provider is polled at its own interval, independently of these calls. The
    /// sign-in ends after 30 s without a call.
    ///
    /// - Returns: `nil` while the person has not finished.
    /// - Throws: as ``complete(_:query:)``.
    func poll(_ handle: String) async throws(IdentityError) -> ProviderSignIn?

    /// Cancels a sign-in. A ``complete(_:query:)`` in flight goes on: the caller has to end the session that it
    /// returns.
    func cancel(_ handle: String) async

    /// Requests an access token, and so checks whether the person may still be signed in.
    ///
    /// - Parameters:
    ///   - record: The record from ``ProviderSignIn/record`` or from the last renewal.
    ///   - scopes: The scopes of the token; empty for the scopes granted at the sign-in.
    ///   - mayBeUsed: Whether an earlier attempt had no response, so that the record's token may be used up.
    func renew(_ record: ProviderRecord, scopes: Set<String>, mayBeUsed: Bool) async -> RenewalOutcome

    /// Ends the session at the provider: first the provider's own session, then revocation of the tokens.
    ///
    /// - Parameter keepsSession: Whether to revoke the tokens alone, because the person has signed in again.
    /// - Throws: `IdentityError`: `providerUnavailable` if a later attempt may help; another code if none does.
    func end(_ record: ProviderRecord, keepsSession: Bool) async throws(IdentityError)
}

extension OrganisationProvider {
    /// Ends the session at the provider, including the provider's own session.
    public func end(_ record: ProviderRecord) async throws(IdentityError) { try await end(record, keepsSession: false) }
}

public struct SignInStart: Sendable, Hashable {
    /// How the person reaches the provider's page.
    public enum Method: String, Sendable, Hashable, CaseIterable, Encodable {
        /// In a browser of this device: authorization code with PKCE.
        case browser
        /// With a code, on another device.
        case deviceCode
    }

    public var method: Method
    /// The address that the browser comes back to: `http://127.0.0.1:PORT/callback`. Only for `browser`.
    public var redirect: String?
    /// The username that the page may suggest.
    public var loginHint: String?
    /// The scopes of the first access token, in addition to the configured scopes.
    public var scopes: Set<String>
    /// The claims that the sign-in has to meet, as JSON (OpenID Connect Core 1.0, section 5.5). Only for `browser`.
    public var claims: String?
    /// The person who has to sign in, for reauthentication; `nil` for any person.
    public var only: ProviderRecord.Person?

    public init(
        _ method: Method,
        redirect: String? = nil,
        loginHint: String? = nil,
        scopes: Set<String> = [],
        claims: String? = nil,
        only: ProviderRecord.Person? = nil
    ) {
        (self.method, self.redirect, self.loginHint) = (method, redirect, loginHint)
        (self.scopes, self.claims, self.only) = (scopes, claims, only)
    }
}

extension SignInStart {
    /// Whether the redirect stays on this machine (RFC 8252, section 7.3). `localhost` may be another machine's name.
    public static func isLoopback(_ redirect: String) -> Bool {
        let (beginning, end) = ("http://127.0.0.1:", "/callback")
        guard redirect.hasPrefix(beginning), redirect.hasSuffix(end),
            redirect.utf8.count > beginning.utf8.count + end.utf8.count
        else { return false }
        let port = redirect.dropFirst(beginning.count).dropLast(end.count)
        return port.utf8.allSatisfy { (0x30...0x39).contains($0) } && (UInt16(port) ?? 0) > 0
    }
}

/// A pending sign-in, with the prompt for the person.
public struct BegunSignIn: Sendable, Hashable {
    public enum Prompt: Sendable, Hashable {
        case browser(address: String)
        /// The code to type in on another device, the page's address, and the same address with the code in it.
        case deviceCode(code: String, address: String, completeAddress: String?)
    }

    /// The provider's identifier of this sign-in. It cannot be guessed.
    public let handle: String
    public let prompt: Prompt
    /// How much time the person has.
    public let lifetime: Duration

    public init(handle: String, prompt: Prompt, lifetime: Duration) {
        (self.handle, self.prompt, self.lifetime) = (handle, prompt, lifetime)
    }
}

/// A completed sign-in. Everything in it has been checked.
public struct ProviderSignIn: Sendable {
    public let account: Account
    public let record: ProviderRecord
    public let token: AccessToken
    public let groups: PersonGroups

    public init(account: Account, record: ProviderRecord, token: AccessToken, groups: PersonGroups = .none) {
        self.account = account
        self.record = record
        self.token = token
        self.groups = groups
    }
}

/// The outcome of ``OrganisationProvider/renew(_:scopes:mayBeUsed:)`` (RFC 6749, sections 5.2 and 6).
public enum RenewalOutcome: Sendable {
    /// A token. A record, if there is one, replaces the last one, and must be on the disk before the token is handed
    /// out.
    case renewed(AccessToken, ProviderRecord?)
    /// The provider has ended the session, or disabled the account.
    case sessionOver
    /// The person has to sign in again. The session stays; only the same person can complete that sign-in.
    case reauthenticationNeeded
    /// The configuration is wrong. The session stays; an administrator has to act.
    case misconfigured(IdentityError)
    /// The provider refuses only these scopes. The session stays.
    case scopeRefused
    /// The outcome is unknown. The session stays, within its grace period.
    ///
    /// - Parameter mayBeUsed: Whether the record's token may be used up. The next call has to pass this on.
    case unavailable(IdentityError, mayBeUsed: Bool)
}

/// The data that is kept of a sign-in until its session is over. Secret: it is sealed on the disk, and its description
/// hides it.
public struct ProviderRecord: Sendable, Hashable, CustomStringConvertible, CustomReflectable {
    /// A person, identified by the provider.
    public struct Person: Sendable, Hashable {
        public let issuer: String
        /// `sub`.
        public let subject: String

        public init(issuer: String, subject: String) {
            self.issuer = issuer
            self.subject = subject
        }
    }

    public let person: Person
    /// `sid`: the provider's identifier of its session, if it has one.
    public let session: String?
    /// Tokens and claims, in the provider implementation's own format. At most ``longestContent`` bytes.
    public let content: Secret

    public static let longestContent = 128 << 10

    public init(person: Person, session: String?, content: Secret) {
        (self.person, self.session, self.content) = (person, session, content)
    }

    public static func == (left: ProviderRecord, right: ProviderRecord) -> Bool {
        left.person == right.person && left.session == right.session && left.content.isEqual(to: right.content)
    }

    public func hash(into hasher: inout Hasher) { hasher.combine(person) }

    /// Hides the content.
    public var description: String { "ProviderRecord(hidden)" }
    public var customMirror: Mirror { Mirror(self, children: [:]) }
}

/// An event from the process that speaks to the provider: a session has ended, by a logout token or a security event,
/// or the broker should ask the provider.
public struct ProviderEvent: Sendable, Hashable {
    public enum Kind: String, Sendable, Hashable, CaseIterable {
        /// The session is over: the broker signs out.
        case ended
        /// The person has to authenticate again; the session stays.
        case reauthenticate
        /// Something happened that may concern the person. The broker asks the provider.
        case doubt
        /// The network is back: the provider can be asked again.
        case networkUp
        /// This device violates the organisation's device policy. The broker signs out and refuses sign-ins.
        case notCompliant
        /// This device complies with the policy again.
        case compliant
    }

    public let kind: Kind
    public let issuer: String
    public let subject: String?
    public let session: String?
    /// When it happened, by the provider's clock; `nil` for now.
    public let date: Date?

    public init(_ kind: Kind, issuer: String, subject: String? = nil, session: String? = nil, date: Date? = nil) {
        (self.kind, self.issuer, self.subject) = (kind, issuer, subject)
        (self.session, self.date) = (session, date)
    }

    /// Whether the event concerns the sign-in of this record. A session in the event decides alone; the subject decides
    /// only if the event names no session (OpenID Connect Back-Channel Logout 1.0, section 2.6).
    public func concerns(_ record: ProviderRecord) -> Bool {
        guard issuer == record.person.issuer, subject == nil || subject == record.person.subject else { return false }
        return session.map { $0 == record.session } ?? (subject != nil)
    }
}
