import FoundationEssentials
import Identity
import OpenIDConnect
import StrictJSON

/// What is kept of a sign-in until its session is over: the content of a `ProviderRecord`, as JSON.
struct KeptSignIn: Codable, Sendable {
    /// An access token that may still count, to be revoked at the end.
    struct IssuedToken: Codable, Sendable {
        var value: String
        /// When it ends, in seconds since 1970.
        var end: Double
        /// Whether no app has asked for it, so that perhaps none has it. An earlier version did not write it.
        var isOfCheck: Bool?

        /// What apps have is to be revoked in any case: the others come first, and are let go first.
        var order: (Int, Double) { (isOfCheck == true ? 0 : 1, end) }
    }

    /// Grows when the same members mean something else.
    var version = 1
    var subject: String
    var session: String?
    /// `nil` where the provider has given none: then the sign-in cannot be renewed.
    var refreshToken: String?
    /// As the provider has signed it, to tell the provider later which session is meant.
    var idToken: String?
    /// What a later ID token has to agree with.
    var authorizedParty: String?
    var authenticatedAt: Double?
    var nonce: String?
    var isSigned: Bool
    /// What was granted at the sign-in.
    var scopes: Set<String>
    /// Those of checks first; of each kind the one that counts longest last.
    var accessTokens: [IssuedToken]

    /// How many access tokens are kept, one for each app and its scopes. So many can be revoked within the time for an end.
    static let mostAccessTokens = 64

    init(_ identity: IDToken, _ tokens: TokenAnswer, scopes: Set<String>, now: Date) {
        subject = identity.subject
        session = identity.sessionIdentifier
        refreshToken = tokens.refreshToken?.text
        idToken = tokens.idToken
        authorizedParty = identity.authorizedParty
        authenticatedAt = identity.authenticatedAt
        nonce = identity.isSigned ? identity.claims["nonce"]?.string : nil
        isSigned = identity.isSigned
        self.scopes = scopes
        accessTokens = []
        add(tokens, now: now)
    }

    /// - Returns: `nil` for what no version of this program has written for this provider.
    init?(_ record: ProviderRecord, of issuer: Issuer) {
        let bytes = Data(record.content.text.utf8)
        guard record.content.count <= ProviderRecord.longestContent, record.person.issuer == issuer.text,
            let kept = try? JSONDecoder().decode(KeptSignIn.self, from: bytes), kept.version == 1,
            kept.subject == record.person.subject
        else { return nil }
        self = kept
    }

    /// After a refresh.
    ///
    /// - Parameter isCheck: whether no app has asked for it.
    mutating func renew(_ tokens: TokenAnswer, isCheck: Bool = false, now: Date) {
        if let token = tokens.refreshToken { refreshToken = token.text }
        if let token = tokens.idToken { idToken = token }
        add(tokens, isCheck: isCheck, now: now)
    }

    private mutating func add(_ tokens: TokenAnswer, isCheck: Bool = false, now: Date) {
        let time = now.timeIntervalSince1970
        accessTokens.removeAll { $0.end <= time }
        accessTokens.append(
            IssuedToken(
                value: tokens.accessToken.text,
                end: time + tokens.lifetime / .seconds(1),
                isOfCheck: isCheck ? true : nil
            )
        )
        accessTokens.sort { $0.order < $1.order }
        accessTokens.removeFirst(max(0, accessTokens.count - Self.mostAccessTokens))
    }

    /// What the provider has to be told of at the end.
    ///
    /// - Parameter withSession: whether the provider's session is to end, too.
    func issued(at now: Date, withSession: Bool = true) -> IssuedTokens {
        IssuedTokens(
            idToken: withSession ? idToken : nil,
            refreshToken: refreshToken.map { Secret($0) },
            accessTokens: accessTokens.filter { $0.end > now.timeIntervalSince1970 }.reversed().map { Secret($0.value) }
        )
    }

    /// What the check of a later ID token needs of the first one.
    func identity(of issuer: Issuer) -> IDToken {
        IDToken(
            kept: issuer,
            subject: subject,
            authorizedParty: authorizedParty,
            authenticatedAt: authenticatedAt,
            nonce: nonce,
            isSigned: isSigned
        )
    }

    /// As it is kept. Of tokens that are too large together, those are left out without which the session goes on: access tokens, those first
    /// that end first, then the ID token.
    ///
    /// - Throws: `IdentityError`: `providerMisconfigured` where the refresh token alone is too large.
    func record(of issuer: Issuer) throws(IdentityError) -> ProviderRecord {
        var kept = self
        while true {
            guard let content = try? JSONEncoder().encode(kept) else {
                throw IdentityError(.providerFailed, "what \(issuer) has issued cannot be written as JSON")
            }
            if content.count <= ProviderRecord.longestContent {
                let person = ProviderRecord.Person(issuer: issuer.text, subject: subject)
                return ProviderRecord(person: person, session: session, content: Secret(bytes: content))
            }
            if !kept.accessTokens.isEmpty {
                kept.accessTokens.removeFirst()
            } else if kept.idToken != nil {
                kept.idToken = nil
            } else {
                throw IdentityError(
                    .providerMisconfigured,
                    "\(issuer) issues a refresh token that is too large to keep (\(content.count) bytes)"
                )
            }
        }
    }
}
