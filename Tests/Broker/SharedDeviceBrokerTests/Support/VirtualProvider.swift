import DBusTransport
import DeviceConfiguration
import Foundation
import Identity
import SharedDevice
import Testing

@testable import SharedDeviceBroker

/// An organisation's provider without a network: what it is asked is recorded, and what it answers is a value of the test's.
struct VirtualProvider {
    static let issuer = "https://login.example"

    /// What a renewal comes to, where it is not a new token.
    var outcome: RenewalOutcome?
    /// A renewal that asks for one of these is refused.
    var refusedScopes: Set<String> = []
    /// Fails what is begun or ended.
    var error: IdentityError?
    /// What a person at another device has done.
    var polled: Result<String?, IdentityError> = .success(nil)
    /// Whether renewals and ends are never answered; the test brings the answers itself.
    var hangs = false
    /// Whether each renewal brings a new record.
    var rotates = true
    /// What tokens permit, whatever was asked for.
    var granted: Set<String>?
    /// The name of the provider's session, in each record.
    var session: String? = "sid"
    /// What the provider says of the person with each token.
    var identity: IdentityToken?

    fileprivate(set) var lastToken = 0
    var lastHandle = 0
    var starts: [SignInStart] = []
    var cancelled: [String] = []
    var polls = 0
    var renewals: [(ProviderRecord, scopes: Set<String>, mayBeUsed: Bool)] = []
    var ends: [ProviderRecord] = []
    /// Of which the tokens alone were to be revoked.
    var revocations: [ProviderRecord] = []

    /// The query is the person's name, as in `Account.named(_:)`; or `cancel`.
    mutating func signIn(_ person: String, at now: Moment) -> Result<ProviderSignIn?, IdentityError> {
        if person == "cancel" { return .failure(IdentityError(.userCanceled, "the sign-in was cancelled")) }
        let token = token(["openid", "profile"], at: now)
        return .success(ProviderSignIn(account: .named(person), record: record(of: person), token: token))
    }

    mutating func poll(at now: Moment) -> Result<ProviderSignIn?, IdentityError> {
        switch polled {
        case .success(let person?): signIn(person, at: now)
        case .success(nil): .success(nil)
        case .failure(let error): .failure(error)
        }
    }

    /// - Returns: `nil` where the provider hangs.
    mutating func renew(_ record: ProviderRecord, _ scopes: Set<String>, at now: Moment) -> RenewalOutcome? {
        if hangs { return nil }
        if !scopes.isDisjoint(with: refusedScopes) { return .scopeRefused }
        if let outcome { return outcome }
        return renewed(record, scopes, at: now)
    }

    /// A new token, with the next record.
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

    /// The content has the number of the last token.
    func record(of person: String) -> ProviderRecord {
        ProviderRecord(
            person: ProviderRecord.Person(issuer: Self.issuer, subject: person),
            session: session,
            content: Secret("refresh \(lastToken)")
        )
    }
}

extension ProviderSession {
    /// What a start of the broker without a key finds.
    var withoutRecord: ProviderSession {
        ProviderSession(
            issuer: issuer,
            client: client,
            record: nil,
            checkedAt: checkedAt,
            provedAt: provedAt,
            beganAt: beganAt
        )
    }
}

extension VirtualDevice {
    /// Makes an organisation's provider the one who knows people, and gives the app `till` its scopes.
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
        var rights = TokenRights()
        rights.scopes = ["openid", "profile", "orders"]
        let identity = AppManifest.Identity(executable: "/usr/bin/app")
        use(
            AppManifest(identifier: "org.example.till", identity: identity, tokens: rights),
            AppManifest(identifier: "org.example.notes", identity: identity)
        )
    }

    /// Begins a sign-in on the provider's page, and returns its name.
    func beginPage(_ prompt: App) throws -> String {
        var wish = Request.PromptWish()
        wish.redirect = "http://127.0.0.1:1234/callback"
        return try #require(try ask(prompt, .beginSignIn(wish))["request"]?.stringValue)
    }

    func answerPage(_ name: String, _ person: String) -> Request.Call {
        .completeSignIn(name: name, .query(person))
    }

    /// Somebody signs in on the provider's page.
    ///
    /// - Returns: the session's number.
    @discardableResult
    func signInAtProvider(_ person: String, by prompt: App) throws -> UInt64 {
        let fields = try ask(prompt, answerPage(try beginPage(prompt), person))
        return try #require(fields["epoch"]?.unsignedValue)
    }
}
