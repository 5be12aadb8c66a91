import Basics
package import Cryptography
package import FoundationEssentials
package import Identity

/// A checked logout token (OpenID Connect Back-Channel Logout 1.0, section 2.4).
package struct LogoutToken: Sendable, Hashable {
    /// `nil` only if there is a session identifier.
    package let subject: String?
    package let sessionIdentifier: String?
    /// `jti`: each is accepted once.
    package let identifier: String
    /// `iat`: a session that began later has not ended.
    package let date: Date

    private static let event = "http://schemas.openid.net/event/backchannel-logout"
    /// The highest age, in seconds.
    private static let oldest: Double = 120

    /// - Throws: `IdentityError`, also for an ID token in the role of a logout token.
    package init(_ token: VerifiedToken, issuer: Issuer, clientID: String, now: Date) throws(IdentityError) {
        let claims = TokenClaims(token, of: issuer)
        try claims.checkType(["JWT", "logout+jwt"])
        try claims.checkIssuer()
        try claims.checkAudience(clientID, mayBeOthers: true)
        // The errata of 2023 require `exp`. The older glewlwyd sends none.
        date = try claims.checkTimes(now: now, needsEnd: false, oldest: Self.oldest)
        guard claims.json["events"]?[Self.event]?.object != nil else {
            throw .badToken(issuer, "“events” of its token lacks the logout")
        }
        guard claims.json["nonce"] == nil else { throw .badToken(issuer, "“nonce” is in its logout token") }
        identifier = try claims.identifier()
        subject = claims.json["sub"] == nil ? nil : try claims.subject()
        sessionIdentifier = claims.text("sid")
        guard subject != nil || sessionIdentifier != nil else {
            throw .badToken(issuer, "“sub” and “sid” of its logout token are missing")
        }
    }
}

/// The identifiers of accepted tokens, to reject duplicates.
package struct SeenIdentifiers: Sendable {
    /// More than the highest age of a logout token.
    private static let age: Duration = .seconds(600)
    private static let capacity = 1000

    private var times: [String: ContinuousClock.Instant] = [:]
    private var order: [String] = []

    package init() {}

    /// - Returns: `false` if the identifier was accepted before. At the limit the oldest one is forgotten; from then on
    ///   only the age check protects against that duplicate.
    package mutating func take(_ identifier: String, at now: ContinuousClock.Instant) -> Bool {
        while let first = order.first, times[first].map({ now - $0 > Self.age }) ?? true { forgetOldest() }
        guard times[identifier] == nil else { return false }
        if order.count >= Self.capacity { forgetOldest() }
        times[identifier] = now
        order.append(identifier)
        return true
    }

    /// Forgets an identifier, because its token had no effect. A retry is accepted.
    package mutating func forget(_ identifier: String) {
        times[identifier] = nil
        order.removeAll { $0 == identifier }
    }

    private mutating func forgetOldest() { times[order.removeFirst()] = nil }
}
