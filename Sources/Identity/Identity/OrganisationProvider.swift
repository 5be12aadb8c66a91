package import FoundationEssentials
package import SharedDevice

/// The organisation's own provider, which asks the person itself: no password comes by here. The broker's reducer knows what is here and nothing
/// of OpenID Connect; whoever carries it out may be another process.
///
/// Several calls may be under way at a time. Of `renew` the broker has one at a time under way, and one of `end`, never both for one sign-in: providers
/// revoke all tokens of a sign-in where one is used twice. Every call ends by itself within a minute. It keeps nothing of who is signed in.
package protocol OrganisationProvider: Sendable {
    /// Begins a sign-in.
    ///
    /// - Throws: `IdentityError`: `providerUnavailable`, `providerMisconfigured`, `busy`.
    func begin(_ start: SignInStart) async throws(IdentityError) -> BegunSignIn

    /// Completes a sign-in in the browser.
    ///
    /// - Parameters:
    ///   - handle: ``BegunSignIn/handle``. It counts once.
    ///   - query: what the browser came back with after the `?`, at most 8192 bytes.
    /// - Throws: `IdentityError`: `authenticationFailed`, `userCanceled`, `loginExpired`, `providerUnavailable`, `providerMisconfigured`.
    func complete(_ handle: String, query: String) async throws(IdentityError) -> ProviderSignIn

    /// What became of a sign-in by device code. The provider is asked only as often as it allows, however often this is called; with nobody who
    /// calls for 30 s, the sign-in ends.
    ///
    /// - Returns: `nil` while the person has not finished.
    /// - Throws: as ``complete(_:query:)``.
    func poll(_ handle: String) async throws(IdentityError) -> ProviderSignIn?

    /// Nobody waits for this sign-in any more. A ``complete(_:query:)`` that is under way goes on: what it returns, the caller has to end.
    func cancel(_ handle: String) async

    /// Asks for an access token, and so whether the person may still be signed in.
    ///
    /// - Parameters:
    ///   - record: what ``ProviderSignIn/record`` or the last ``Renewal`` had.
    ///   - scopes: what the token is to permit; none: what was granted at the sign-in.
    ///   - mayBeUsed: whether an attempt of before had no answer, so that the record's token may be used up.
    func renew(_ record: ProviderRecord, scopes: Set<String>, mayBeUsed: Bool) async -> RenewalOutcome

    /// Tells the provider that the session is over: end of its session first, then revocation of the tokens.
    ///
    /// - Parameter keepsSession: whether the tokens alone are revoked, because the person has signed in anew.
    /// - Throws: `IdentityError`: `providerUnavailable` where a later attempt may help; another code where none does.
    func end(_ record: ProviderRecord, keepsSession: Bool) async throws(IdentityError)
}

extension OrganisationProvider {
    /// Tells the provider that the session is over, with all that belongs to it.
    package func end(_ record: ProviderRecord) async throws(IdentityError) {
        try await end(record, keepsSession: false)
    }
}

/// A sign-in that is to begin.
package struct SignInStart: Sendable, Hashable {
    /// How the person gets to the provider's page.
    package enum Method: String, Sendable, Hashable, CaseIterable {
        /// In a browser of this device: authorization code with PKCE.
        case browser
        /// On another device, with a code.
        case deviceCode
    }

    package var method: Method
    /// Where the browser comes back to: `http://127.0.0.1:PORT/callback`. For `browser` alone.
    package var redirect: String?
    /// The name that the page may suggest.
    package var loginHint: String?
    /// What the first access token is to permit, beside what the configuration asks for.
    package var scopes: Set<String>
    /// Who has to sign in, after the provider has asked for the person again; `nil`: anybody.
    package var only: ProviderRecord.Person?

    package init(
        _ method: Method,
        redirect: String? = nil,
        loginHint: String? = nil,
        scopes: Set<String> = [],
        only: ProviderRecord.Person? = nil
    ) {
        self.method = method
        self.redirect = redirect
        self.loginHint = loginHint
        self.scopes = scopes
        self.only = only
    }
}

extension SignInStart {
    /// Whether a browser that comes back there stays on this machine (RFC 8252, section 7.3). `localhost` may be another machine's name.
    package static func isLoopback(_ redirect: String) -> Bool {
        let (beginning, end) = ("http://127.0.0.1:", "/callback")
        guard redirect.hasPrefix(beginning), redirect.hasSuffix(end),
            redirect.utf8.count > beginning.utf8.count + end.utf8.count
        else { return false }
        let port = redirect.dropFirst(beginning.count).dropLast(end.count)
        return port.utf8.allSatisfy { (0x30...0x39).contains($0) } && (UInt16(port) ?? 0) > 0
    }
}

/// What the person needs to sign in.
package struct BegunSignIn: Sendable, Hashable {
    package enum Prompt: Sendable, Hashable {
        /// The page's address.
        case browser(address: String)
        /// What is typed in on another device, where, and the same address with the code in it.
        case deviceCode(code: String, address: String, completeAddress: String?)
    }

    /// The provider's name for this sign-in, which nobody can guess.
    package let handle: String
    package let prompt: Prompt
    /// How long the person has.
    package let lifetime: Duration

    package init(handle: String, prompt: Prompt, lifetime: Duration) {
        self.handle = handle
        self.prompt = prompt
        self.lifetime = lifetime
    }
}

/// Somebody has signed in, and everything about it was checked.
package struct ProviderSignIn: Sendable {
    package let account: Account
    package let record: ProviderRecord
    package let token: AccessToken

    package init(account: Account, record: ProviderRecord, token: AccessToken) {
        self.account = account
        self.record = record
        self.token = token
    }
}

/// What became of ``OrganisationProvider/renew(_:scopes:mayBeUsed:)`` (RFC 6749, sections 5.2 and 6).
package enum RenewalOutcome: Sendable {
    /// A token. Where there is a record, it takes the place of the last one, and has to be on the disk before the token is handed out.
    case renewed(AccessToken, ProviderRecord?)
    /// The provider has ended the session, or disabled the person.
    case sessionOver
    /// The provider wants the person. The session stays; only the same person completes the sign-in that follows.
    case reauthenticationNeeded
    /// The configuration is wrong. The session stays; an administrator has to act.
    case misconfigured(IdentityError)
    /// These scopes are refused, and nothing else.
    case scopeRefused
    /// Nothing is known. The session stays, within its grace.
    ///
    /// - Parameter mayBeUsed: whether the record's token may be used up, which the next call has to say.
    case unavailable(IdentityError, mayBeUsed: Bool)
}

/// What has to be kept of a sign-in until its session is over. It is secret: at rest it is sealed, and it shows itself in no log.
package struct ProviderRecord: Sendable, Hashable, CustomStringConvertible, CustomReflectable {
    /// Who has signed in, as the provider knows them.
    package struct Person: Sendable, Hashable {
        package let issuer: String
        /// `sub`.
        package let subject: String

        package init(issuer: String, subject: String) {
            self.issuer = issuer
            self.subject = subject
        }
    }

    package let person: Person
    /// `sid`: the provider's name of its session, where it has one.
    package let session: String?
    /// What the provider's own part knows: tokens and claims, in a form that is its own. At most ``longestContent`` bytes.
    package let content: Secret

    package static let longestContent = 128 << 10

    package init(person: Person, session: String?, content: Secret) {
        self.person = person
        self.session = session
        self.content = content
    }

    package static func == (left: ProviderRecord, right: ProviderRecord) -> Bool {
        left.person == right.person && left.session == right.session && left.content.isEqual(to: right.content)
    }

    package func hash(into hasher: inout Hasher) { hasher.combine(person) }

    /// Not the secret.
    package var description: String { "ProviderRecord(hidden)" }
    /// Not the secret either.
    package var customMirror: Mirror { Mirror(self, children: [:]) }
}

/// What the process that speaks to the provider has heard: the end of a session, by a logout token or a security event, or a reason to ask the provider.
package struct ProviderEvent: Sendable, Hashable {
    package enum Kind: String, Sendable, Hashable, CaseIterable {
        /// The session is over: sign-out.
        case ended
        /// The person has to prove again who they are; the session stays.
        case reauthenticate
        /// Something has happened that may be about the person, and does not say so clearly: the provider knows.
        case doubt
        /// The network is back: the provider can be asked again.
        case networkUp
        /// This device does not do what the organisation asks of its devices: nobody is signed in on it.
        case notCompliant
        /// It does again.
        case compliant
    }

    package let kind: Kind
    package let issuer: String
    package let subject: String?
    package let session: String?
    /// When it happened, by the provider's clock; `nil`: now.
    package let date: Date?

    package init(
        _ kind: Kind,
        issuer: String,
        subject: String? = nil,
        session: String? = nil,
        date: Date? = nil
    ) {
        self.kind = kind
        self.issuer = issuer
        self.subject = subject
        self.session = session
        self.date = date
    }

    /// Whether it is about the sign-in that this record is of. Where the event names a session, that one counts, and the person only where it
    /// names none (OpenID Connect Back-Channel Logout 1.0, section 2.6).
    package func concerns(_ record: ProviderRecord) -> Bool {
        guard issuer == record.person.issuer, subject == nil || subject == record.person.subject else { return false }
        return session.map { $0 == record.session } ?? (subject != nil)
    }
}

/// Makes a provider's record unreadable for the disk, and readable again.
package protocol RecordSealer: Sendable {
    /// - Throws: ``RecordUnreadable``, where the record is too long.
    func seal(_ record: ProviderRecord, for use: RecordUse) throws(RecordUnreadable) -> [UInt8]

    /// - Parameter use: what it was sealed for. It opens for nothing else.
    /// - Throws: ``RecordUnreadable``: the bytes are damaged, were sealed for something else, or by another key.
    func open(_ sealed: [UInt8], for use: RecordUse) throws(RecordUnreadable) -> ProviderRecord
}

/// What a record is kept for.
package enum RecordUse: Sendable, Hashable {
    /// The open session: its number, who signed the person in, and the account.
    case session(epoch: UInt64, issuer: String, account: String)
    /// The provider is to be told that the session is over.
    case ending(number: UInt64)
}

/// A sealed record that cannot be made or opened.
package struct RecordUnreadable: Error, Sendable, Hashable, CustomStringConvertible {
    package let description: String

    package init(_ description: String) { self.description = description }
}
