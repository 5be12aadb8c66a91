package import Basics
import Cryptography
import FoundationEssentials
import Identity

/// The person who has signed in, according to the provider (OpenID Connect Core, section 2). An initialiser that takes
/// a provider's claims checks all of them.
package struct IDToken: Sendable, Hashable {
    package let issuer: Issuer
    /// 1 to 255 bytes of ASCII.
    package let subject: String
    /// `azp`: the client that the token was issued to, if it says so.
    package let authorizedParty: String?
    /// `auth_time`: when the person authenticated, if the token says so. glewlwyd sends 0.
    package let authenticatedAt: Double?
    /// `sid`: the provider's identifier of the session.
    package let sessionIdentifier: String?
    /// Whether the provider has signed the claims. Otherwise they come from the userinfo endpoint, which identifies the
    /// person and tells nothing about the sign-in.
    package let isSigned: Bool
    package let claims: JSONValue
}

/// The values that an ID token is checked against.
struct IDTokenExpectation: Sendable {
    /// The expected value of `nonce`.
    enum Nonce: Sendable, Hashable {
        /// The value of the request.
        case equal(String)
        /// The request had none, as for a device code or a refresh. After a refresh, some providers repeat the
        /// sign-in's value.
        case absent(or: String?)
    }

    let issuer: Issuer
    let clientID: String
    let nonce: Nonce
    /// The access token issued with it, which `at_hash` covers.
    let accessToken: String
    /// When the request was made: the person must have authenticated since then. `nil` after a refresh.
    let requestedAt: Date?
    /// After a refresh: the ID token of the sign-in, which this one must agree with.
    var earlier: IDToken?
}

extension IDToken {
    /// The saved part of a checked ID token. The ID tokens of later refreshes are checked against it.
    package init(
        kept issuer: Issuer,
        subject: String,
        authorizedParty: String?,
        authenticatedAt: Double?,
        nonce: String?,
        isSigned: Bool
    ) {
        self.issuer = issuer
        self.subject = subject
        self.authorizedParty = authorizedParty
        self.authenticatedAt = authenticatedAt
        self.isSigned = isSigned
        sessionIdentifier = nil
        claims = .object(nonce.map { ["nonce": .string($0)] } ?? [:])
    }

    /// The claims of the userinfo endpoint (OpenID Connect Core, section 5.3).
    ///
    /// - Parameter subject: The expected subject; `nil` for any.
    init(userInfo json: JSONValue, issuer: Issuer, subject: String?) throws(IdentityError) {
        guard let name = json["sub"]?.string, TokenClaims.isSubject(name) else {
            throw .badToken(
                issuer,
                JSONValue.flaw(json["sub"], "“sub” of its userinfo_endpoint", "a text of 1 to 255 characters of ASCII")
            )
        }
        guard subject.map({ isSame($0, name) }) ?? true else { throw .anotherSignIn }
        self.issuer = issuer
        self.subject = name
        authorizedParty = nil
        authenticatedAt = nil
        sessionIdentifier = nil
        isSigned = false
        claims = json
    }

    /// Checks the claims (OpenID Connect Core, sections 3.1.3.7, 3.1.3.8 and 12.2).
    ///
    /// - Throws: `IdentityError`: `authenticationFailed`, or `providerMisconfigured` if the issuer differs.
    init(_ token: VerifiedToken, _ expected: IDTokenExpectation, now: Date) throws(IdentityError) {
        let issuer = expected.issuer
        let claims = TokenClaims(token, of: issuer)
        try claims.checkType(["JWT"])
        try claims.checkIssuer()
        try claims.checkAudience(expected.clientID)
        try claims.checkTimes(now: now, needsEnd: true)
        switch expected.nonce {
        case .equal(let nonce):
            guard claims.text("nonce").map({ isSame($0, nonce) }) == true else { throw .anotherSignIn }
        case .absent(let earlier):
            let isFine = claims.json["nonce"].map { nonce in earlier.map { nonce == .string($0) } ?? false } ?? true
            guard isFine else { throw .anotherSignIn }
        }
        self.issuer = issuer
        subject = try claims.subject()
        authorizedParty = claims.text("azp")
        sessionIdentifier = claims.text("sid")
        isSigned = true
        self.claims = claims.json
        if let hash = claims.json["at_hash"] {
            guard hash.string == Self.hash(of: expected.accessToken, for: token.algorithm) else { throw .anotherSignIn }
        }
        if let time = claims.json["auth_time"] {
            guard let seconds = time.number else { throw claims.flaw("auth_time", "a number") }
            authenticatedAt = seconds
        } else {
            authenticatedAt = nil
        }
        if let time = authenticatedAt, time > 0, let start = expected.requestedAt,
            time < start.timeIntervalSince1970 - TokenClaims.skew
        {
            throw .earlierPerson(issuer)
        }
        if let earlier = expected.earlier { try checkAgreement(with: earlier) }
    }

    /// Whether a token is invalid only because of its times. Then the provider's clock or this device's is wrong.
    static func isOfAnotherTimeAlone(_ token: VerifiedToken, _ expected: IDTokenExpectation, now: Date) -> Bool {
        func isFine(at time: Date) -> Bool { (try? IDToken(token, expected, now: time)) != nil }
        guard let issued = token.claims["iat"]?.number else { return false }
        return !isFine(at: now) && isFine(at: Date(timeIntervalSince1970: issued))
    }

    /// Checks that a refresh renews the same person's session of the same sign-in.
    private func checkAgreement(with earlier: IDToken) throws(IdentityError) {
        let isSamePerson = issuer == earlier.issuer && isSame(subject, earlier.subject)
        let isSameSignIn =
            !earlier.isSigned
            || authorizedParty == earlier.authorizedParty
                && (authenticatedAt == nil || authenticatedAt == earlier.authenticatedAt)
        guard isSamePerson, isSameSignIn else { throw .anotherSignIn }
    }

    /// The left half of the hash that belongs to the signature algorithm; SHA-512 for Ed25519.
    private static func hash(of accessToken: String, for algorithm: SignatureAlgorithm) -> String {
        let bytes = Array(accessToken.utf8)
        return switch algorithm {
        case .rs256, .ps256, .es256: Base64URL.encode(Digest.sha256.hash(bytes).prefix(16))
        case .edDSA: Base64URL.encode(Digest.sha512.hash(bytes).prefix(32))
        }
    }
}
