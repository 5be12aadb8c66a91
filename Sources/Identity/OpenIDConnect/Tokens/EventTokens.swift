package import FoundationEssentials
package import JSONWebSignature
import StrictJSON

/// The provider's word that a session has ended (OpenID Connect Back-Channel Logout 1.0, section 2.4).
package struct LogoutToken: Sendable, Hashable {
    /// `nil` only where there is a session identifier.
    package let subject: String?
    package let sessionIdentifier: String?
    /// `jti`: each counts once.
    package let identifier: String
    /// `iat`: a session that began later is not the one that has ended.
    package let date: Date

    private static let event = "http://schemas.openid.net/event/backchannel-logout"
    /// How old it may be, in seconds.
    private static let oldest: Double = 120

    /// - Throws: `SignInError`, also for an ID token that is to pass for a logout token.
    package init(_ token: VerifiedToken, issuer: Issuer, clientID: String, now: Date) throws(SignInError) {
        let claims = TokenClaims(token, of: issuer)
        try claims.checkType(["JWT", "logout+jwt"])
        try claims.checkIssuer()
        try claims.checkAudience(clientID, mayBeOthers: true)
        // Errata of 2023 ask for `exp`; glewlwyd, which is older, has none.
        date = try claims.checkTimes(now: now, needsEnd: false, oldest: Self.oldest)
        guard claims.json["events"]?[Self.event]?.object != nil else {
            throw .badToken(issuer, "“events” of its token lacks the logout")
        }
        guard claims.json["nonce"] == nil else { throw .badToken(issuer, "“nonce” is in its logout token") }
        guard let identifier = claims.text("jti"), (1...255).contains(identifier.utf8.count) else {
            throw claims.flaw("jti", "a text of 1 to 255 bytes")
        }
        self.identifier = identifier
        subject = claims.json["sub"] == nil ? nil : try claims.subject()
        sessionIdentifier = claims.text("sid")
        guard subject != nil || sessionIdentifier != nil else {
            throw .badToken(issuer, "“sub” and “sid” of its logout token are missing")
        }
    }
}

/// Which tokens have been taken already.
package struct SeenIdentifiers: Sendable {
    /// Longer than such a token may be old.
    private static let age: Duration = .seconds(600)
    private static let capacity = 1000

    private var times: [String: ContinuousClock.Instant] = [:]
    private var order: [String] = []

    package init() {}

    /// - Returns: `false` where the identifier was taken before. At the limit the oldest is forgotten: that a token is new by its time protects then.
    package mutating func take(_ identifier: String, at now: ContinuousClock.Instant) -> Bool {
        while let first = order.first, times[first].map({ now - $0 > Self.age }) ?? true { forgetOldest() }
        guard times[identifier] == nil else { return false }
        if order.count >= Self.capacity { forgetOldest() }
        times[identifier] = now
        order.append(identifier)
        return true
    }

    /// It counts as new again, because nothing came of it.
    package mutating func forget(_ identifier: String) {
        times[identifier] = nil
        order.removeAll { $0 == identifier }
    }

    private mutating func forgetOldest() { times[order.removeFirst()] = nil }
}
