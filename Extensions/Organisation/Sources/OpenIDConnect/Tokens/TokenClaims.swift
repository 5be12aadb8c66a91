import Basics
import Cryptography
import FoundationEssentials
import Identity

/// The checks that ID tokens, logout tokens and security event tokens share.
struct TokenClaims {
    /// The tolerated difference between two clocks, in seconds.
    static let skew: Double = 60

    let json: JSONValue
    private let type: String?
    private let issuer: Issuer

    init(_ token: VerifiedToken, of issuer: Issuer) {
        json = token.claims
        type = token.type
        self.issuer = issuer
    }

    /// The error for a claim that is missing or has the wrong type.
    ///
    /// - Parameter wanted: The expected type, for the message.
    func flaw(_ name: String, _ wanted: String) -> IdentityError {
        .badToken(issuer, JSONValue.flaw(json[name], "“\(name)” of its token", wanted))
    }

    /// A claim that is a string; `nil` if it is missing or has another type.
    func text(_ name: String) -> String? { json[name]?.string }

    /// Checks `typ`, so that a token of one kind cannot pass for one of another kind (RFC 8725, section 3.11).
    func checkType(_ names: [String], needed: Bool = false) throws(IdentityError) {
        guard let type else {
            if needed { throw .badToken(issuer, "“typ” of its token is missing") }
            return
        }
        // A media type ignores case, and may omit `application/`.
        var name = type.lowercased()
        if name.hasPrefix("application/") { name.removeFirst("application/".count) }
        guard names.contains(where: { $0.lowercased() == name }) else {
            throw .badToken(issuer, "“typ” of its token is \(type.quoted)")
        }
    }

    func checkIssuer() throws(IdentityError) {
        guard let name = text("iss") else { throw flaw("iss", "a text") }
        guard issuer.isNamed(name) else { throw .issuerDiffers(name, from: issuer) }
    }

    /// Checks that the token is for this client. If it is for several clients, `azp` is required. A present `azp` must
    /// name this client.
    ///
    /// - Parameter mayBeOthers: Whether to ignore `azp` and allow several clients, as for logout tokens and security
    ///   events, which no client requests.
    func checkAudience(_ clientID: String, mayBeOthers: Bool = false) throws(IdentityError) {
        let audience: [String]? =
            switch json["aud"] {
            case .string(let name): [name]
            case .some(let value): value.strings
            case nil: nil
            }
        guard let audience else { throw flaw("aud", "a text or a list of texts") }
        guard audience.contains(where: { isSame($0, clientID) }) else {
            throw .otherAudience(issuer, Self.lacks(clientID))
        }
        if mayBeOthers { return }
        guard let party = json["azp"] else {
            guard audience.count == 1 else {
                throw .badToken(
                    issuer,
                    "“aud” of its token names several clients, and “azp”, which says for whom it is, is missing"
                )
            }
            return
        }
        guard party.string.map({ isSame($0, clientID) }) == true else {
            throw .otherAudience(issuer, "“azp” of its token is not \(clientID.quoted)")
        }
    }

    static func lacks(_ audience: String) -> String { "“aud” of its token lacks \(audience.quoted)" }

    /// Checks that `iat` and `nbf` are not in the future, and `exp` is not in the past.
    ///
    /// - Parameters:
    ///   - needsEnd: Whether `exp` is required.
    ///   - oldest: The highest age, in seconds.
    /// - Returns: When the token was issued.
    @discardableResult
    func checkTimes(now: Date, needsEnd: Bool, oldest: Double? = nil) throws(IdentityError) -> Date {
        let seconds = now.timeIntervalSince1970
        let issued = try time("iat")
        let wrongTime = IdentityError.wrongTime(Date(timeIntervalSince1970: issued), now: now)
        guard issued <= seconds + Self.skew else { throw wrongTime }
        if let oldest { guard issued >= seconds - oldest else { throw wrongTime } }
        if needsEnd || json["exp"] != nil { guard try time("exp") > seconds - Self.skew else { throw wrongTime } }
        if json["nbf"] != nil { guard try time("nbf") <= seconds + Self.skew else { throw wrongTime } }
        return Date(timeIntervalSince1970: issued)
    }

    private func time(_ name: String) throws(IdentityError) -> Double {
        guard let seconds = json[name]?.number else { throw flaw(name, "a number") }
        guard Self.isTime(seconds) else { throw .badToken(issuer, "“\(name)” of its token is no time in seconds") }
        return seconds
    }

    /// From 1970 to the year 9999, so that the date can be formatted.
    private static func isTime(_ seconds: Double) -> Bool { seconds >= 0 && seconds < 253_402_300_800 }

    func identifier() throws(IdentityError) -> String {
        guard let identifier = text("jti"), (1...255).contains(identifier.utf8.count) else {
            throw flaw("jti", "a text of 1 to 255 bytes")
        }
        return identifier
    }

    func subject() throws(IdentityError) -> String {
        guard let subject = text("sub") else { throw flaw("sub", "a text") }
        guard Self.isSubject(subject) else {
            throw .badToken(issuer, "“sub” of its token is not 1 to 255 characters of ASCII")
        }
        return subject
    }

    /// The form of `sub` (OpenID Connect Core, section 2).
    static func isSubject(_ text: String) -> Bool {
        (1...255).contains(text.utf8.count) && text.utf8.allSatisfy { $0 >= 0x20 && $0 < 0x7F }
    }
}

extension JSONValue {
    /// Describes a member that is missing or has the wrong type.
    static func flaw(_ value: JSONValue?, _ name: String, _ wanted: String) -> String {
        guard let value, value != .null else { return "\(name) is missing" }
        return "\(name) is \(value.kind), and not \(wanted)"
    }
}
