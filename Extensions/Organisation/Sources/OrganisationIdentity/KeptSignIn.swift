import Basics
import FoundationEssentials
import Identity
import OpenIDConnect

/// The part of a sign-in that is kept until its session is over: the content of a `ProviderRecord`, as JSON.
struct KeptSignIn: Codable, Sendable {
    /// An access token that may still be valid, to be revoked at the end of the session.
    struct IssuedToken: Codable, Sendable {
        var value: String
        /// The expiry, in seconds since 1970.
        var end: Double
        /// Whether the token came from a check of the session, so that perhaps no app has it. Earlier versions did not
        /// write this member.
        var isOfCheck: Bool?

        /// Tokens that apps have must be revoked. Tokens of checks sort first, because the first ones are dropped
        /// first.
        var order: (Int, Double) { (isOfCheck == true ? 0 : 1, end) }
    }

    /// Incremented when existing members change their meaning.
    var version = 1
    var subject: String
    var session: String?
    /// `nil` if the provider issued none: then the sign-in cannot be renewed.
    var refreshToken: String?
    /// The signed text, which names the session to the provider when it ends.
    var idToken: String?
    /// A later ID token must agree with `authorizedParty`, `authenticatedAt` and `nonce`.
    var authorizedParty: String?
    var authenticatedAt: Double?
    var nonce: String?
    var isSigned: Bool
    /// The scopes granted at the sign-in.
    var scopes: Set<String>
    /// Tokens of checks first; within each kind in order of expiry.
    var accessTokens: [IssuedToken]

    /// The most access tokens that are kept: one for each app and its scopes. The time for ending a session suffices to
    /// revoke this many.
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

    /// - Returns: `nil` if no version of this program has written the record for this provider.
    init?(_ record: ProviderRecord, of issuer: Issuer) {
        let bytes = Data(record.content.text.utf8)
        guard record.content.count <= ProviderRecord.longestContent, record.person.issuer == issuer.text,
            let kept = try? JSONDecoder().decode(KeptSignIn.self, from: bytes), kept.version == 1,
            kept.subject == record.person.subject
        else { return nil }
        self = kept
    }

    /// Takes over the tokens of a refresh.
    ///
    /// - Parameter isCheck: Whether the refresh was a check of the session, so that no app has requested the token.
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

    /// The tokens to revoke at the provider at the end of the session.
    ///
    /// - Parameter withSession: Whether to end the provider's own session, too.
    func issued(at now: Date, withSession: Bool = true) -> IssuedTokens {
        IssuedTokens(
            idToken: withSession ? idToken : nil,
            refreshToken: refreshToken.map { Secret($0) },
            accessTokens: accessTokens.filter { $0.end > now.timeIntervalSince1970 }.reversed().map { Secret($0.value) }
        )
    }

    /// The members of the first ID token that the check of a later one needs.
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

    /// The record to keep. If the tokens are too large together, tokens that the session does not need are left out:
    /// first the access tokens in their order, then the ID token.
    ///
    /// - Throws: `IdentityError`: `providerMisconfigured` if the refresh token alone is too large.
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
