import DBus
import DeviceConfiguration
import Foundation
import Identity
@_spi(Extensions) import SharedDevice
import Testing

@testable import BrokerCore

/// An organisation's provider without a network. It records requests, and the test sets the responses.
struct VirtualProvider {
    static let issuer = "https://login.example"

    /// The outcome of each renewal; `nil` for a new token.
    var outcome: RenewalOutcome?
    /// A renewal that requests one of these scopes is refused.
    var refusedScopes: Set<String> = []
    /// Makes each beginning of a sign-in and each end of a session fail.
    var error: IdentityError?
    /// The result of a sign-in on another device; a success with `nil` while the sign-in is pending.
    var polled: Result<String?, IdentityError> = .success(nil)
    /// Whether renewals and ends get no response. The test may feed responses itself.
    var hangs = false
    var rotates = true
    /// The scopes of each token, if they differ from those requested.
    var granted: Set<String>?
    /// The provider's session in each record.
    var session: String? = "sid"
    var identity: IdentityToken?
    /// The groups in the ID token of each sign-in.
    var groups = PersonGroups.none

    fileprivate(set) var lastToken = 0
    var lastHandle = 0
    var starts: [SignInStart] = []
    var cancelled: [String] = []
    var polls = 0
    var renewals: [(ProviderRecord, scopes: Set<String>, mayBeUsed: Bool)] = []
    var ends: [ProviderRecord] = []
    /// The records of which only the tokens were to be revoked.
    var revocations: [ProviderRecord] = []

    /// The query contains the user's name as in `Account.named(_:)`, or `cancel`.
    mutating func signIn(_ person: String, at now: Moment) -> Result<ProviderSignIn?, IdentityError> {
        if person == "cancel" { return .failure(IdentityError(.userCanceled, "the sign-in was cancelled")) }
        let token = token(["openid", "profile"], at: now)
        let record = record(of: person)
        return .success(ProviderSignIn(account: .named(person), record: record, token: token, groups: groups))
    }

    mutating func poll(at now: Moment) -> Result<ProviderSignIn?, IdentityError> {
        switch polled {
        case .success(let person?): signIn(person, at: now)
        case .success(nil): .success(nil)
        case .failure(let error): .failure(error)
        }
    }

    /// - Returns: `nil` if the provider hangs.
    mutating func renew(_ record: ProviderRecord, _ scopes: Set<String>, at now: Moment) -> RenewalOutcome? {
        if hangs { return nil }
        if !scopes.isDisjoint(with: refusedScopes) { return .scopeRefused }
        if let outcome { return outcome }
        return renewed(record, scopes, at: now)
    }

    mutating func renewed(_ record: ProviderRecord, _ scopes: Set<String>, at now: Moment) -> RenewalOutcome {
        let token = token(scopes.isEmpty ? ["openid", "profile"] : scopes, at: now)
        return .renewed(token, rotates ? self.record(of: record.person.subject) : nil)
    }

    private mutating func token(_ scopes: Set<String>, at now: Moment) -> AccessToken {
        lastToken += 1
        return AccessToken(
            value: "access \(lastToken)",
            scopes: granted ?? scopes,
            expiresAt: now.wall + 3600,
            identity: identity
        )
    }

    /// A record whose content is the number of the last token.
    func record(of person: String) -> ProviderRecord {
        ProviderRecord(
            person: ProviderRecord.Person(issuer: Self.issuer, subject: person),
            session: session,
            content: Secret("refresh \(lastToken)")
        )
    }
}

extension ProviderSession {
    /// The session as the broker reads it at its start without a key.
    var withoutRecord: ProviderSession {
        var session = self
        (session.record, session.needsPerson, session.isSettled) = (nil, false, false)
        return session
    }
}

extension IdentityError {
    static let noNetwork = IdentityError(.providerUnavailable, "no network")
}

extension RenewalOutcome {
    static let noNetwork = RenewalOutcome.unavailable(.noNetwork, mayBeUsed: false)
}

extension ProviderEvent {
    /// An event of the virtual provider.
    static func of(
        _ kind: ProviderEvent.Kind,
        _ person: String? = nil,
        session: String? = nil,
        at date: Date? = nil
    ) -> ProviderEvent {
        ProviderEvent(kind, issuer: VirtualProvider.issuer, subject: person, session: session, date: date)
    }
}

extension VirtualDevice {
    /// Configures an organisation's provider, and gives the app `till` its scopes.
    func useOrganisation(_ keys: String = "") throws {
        let json = """
            {"sharedDeviceMode": true, "identity": "oidc", "oidcIssuer": "\(VirtualProvider.issuer)", "oidcClientID": "device"\(keys)}
            """
        let configuration = try ManagedConfiguration(json: Data(json.utf8), file: "test")
        configure {
            $0.identity = .oidc
            $0.passwordSignIn = false
            $0.organisation = configuration.organisation
        }
        use(.app("org.example.till", scopes: ["openid", "profile", "orders"]), .app("org.example.notes"))
    }

    static var pageWish: Request.PromptWish {
        var wish = Request.PromptWish()
        wish.redirect = "http://127.0.0.1:1234/callback"
        return wish
    }

    func beginPage(_ prompt: App? = nil) throws -> String {
        let fields = try ask(prompt ?? self.prompt, .beginSignIn(Self.pageWish))
        return try #require(fields["request"]?.stringValue)
    }

    func answerPage(_ name: String, _ person: String) -> Request.Call {
        .completeSignIn(name: name, .query(person))
    }

    /// Sends the page's response. Returns the request's number.
    @discardableResult
    func sendPage(_ name: String, _ person: String = "ada") -> UInt64 { send(prompt, answerPage(name, person)) }

    /// Signs a user in on the provider's page.
    ///
    /// - Returns: the session's number.
    @discardableResult
    func signInAtProvider(_ person: String = "ada", by prompt: App? = nil) throws -> UInt64 {
        let prompt = prompt ?? self.prompt
        let fields = try ask(prompt, answerPage(try beginPage(prompt), person))
        return try #require(fields["epoch"]?.unsignedValue)
    }

    func report(_ events: ProviderEvent...) throws { try ask(identityService, .providerEvents(events)) }

    /// The provider requires Ada to authenticate again.
    func demandPerson() throws { try report(.of(.reauthenticate, "ada", at: now.wall)) }

    /// Requests a token of Ada's by the till. Returns the request's number.
    @discardableResult
    func requestToken(_ scopes: Set<String> = ["orders"], refresh: Bool = false) -> UInt64 {
        send(till, acquireToken(for: "ada", scopes, refresh: refresh))
    }

    func token(_ scopes: Set<String> = ["orders"], refresh: Bool = false) throws -> String {
        try WireToken(answer(requestToken(scopes, refresh: refresh))["token"]).value
    }

    func refusalOfToken(_ scopes: Set<String> = ["orders"]) -> Refusal? { refusal(requestToken(scopes)) }
}
