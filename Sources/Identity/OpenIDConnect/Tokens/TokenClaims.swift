import FoundationEssentials
import JSONWebSignature
import StrictJSON

/// The checks that ID tokens, logout tokens and security event tokens share.
struct TokenClaims {
    /// How far two clocks may differ, in seconds.
    static let skew: Double = 60

    let json: JSONValue
    private let type: String?
    private let issuer: Issuer

    init(_ token: VerifiedToken, of issuer: Issuer) {
        json = token.claims
        type = token.type
        self.issuer = issuer
    }

    /// A claim that is a text; `nil` where it is none.
    func text(_ name: String) -> String? { json[name]?.string }

    /// A token of one kind must not pass for one of another (RFC 8725, section 3.11).
    ///
    /// - Parameter needed: whether there has to be a type.
    func checkType(_ names: [String], needed: Bool = false) throws(SignInError) {
        guard let type else {
            if needed { throw .badToken(issuer, "its header has no “typ”") }
            return
        }
        // A media type is the same in other cases, and with its first part.
        var name = type.lowercased()
        if name.hasPrefix("application/") { name.removeFirst("application/".count) }
        guard names.contains(where: { $0.lowercased() == name }) else {
            throw .badToken(issuer, "its “typ” is \(type.quoted)")
        }
    }

    func checkIssuer() throws(SignInError) {
        guard let name = text("iss") else { throw .badToken(issuer, "it has no “iss”") }
        guard issuer.isNamed(name) else { throw .issuerDiffers(name, from: issuer) }
    }

    /// The token is for this client; where it is for others too, it says that this one asked for it.
    ///
    /// - Parameter mayBeOthers: whether it may be for others too without that: nobody asks for a security event.
    func checkAudience(_ clientID: String, mayBeOthers: Bool = false) throws(SignInError) {
        let audience: [String]? =
            switch json["aud"] {
            case .string(let name): [name]
            case .some(let value): value.strings
            case nil: nil
            }
        guard let audience, !audience.isEmpty else { throw .badToken(issuer, "it has no “aud”") }
        guard audience.contains(where: { isSame($0, clientID) }) else { throw .anotherSignIn }
        guard let party = json["azp"] else {
            if audience.count > 1, !mayBeOthers { throw .anotherSignIn }
            return
        }
        guard party.string.map({ isSame($0, clientID) }) == true else { throw .anotherSignIn }
    }

    /// `iat` is not of the future, `exp` not of the past, `nbf` not of the future.
    ///
    /// - Parameters:
    ///   - needsEnd: whether there has to be `exp`.
    ///   - oldest: how old the token may be, in seconds.
    /// - Returns: when the token was issued.
    @discardableResult
    func checkTimes(now: Date, needsEnd: Bool, oldest: Double? = nil) throws(SignInError) -> Date {
        let seconds = now.timeIntervalSince1970
        guard let issued = json["iat"]?.number, Self.isTime(issued) else { throw .badToken(issuer, "it has no “iat”") }
        let wrongTime = SignInError.wrongTime(Date(timeIntervalSince1970: issued), now: now)
        guard issued <= seconds + Self.skew else { throw wrongTime }
        if let oldest { guard issued >= seconds - oldest else { throw wrongTime } }
        if let end = json["exp"] {
            guard let end = end.number, Self.isTime(end) else { throw .badToken(issuer, "its “exp” is no time") }
            guard end > seconds - Self.skew else { throw wrongTime }
        } else if needsEnd {
            throw .badToken(issuer, "it has no “exp”")
        }
        if let start = json["nbf"] {
            guard let start = start.number, Self.isTime(start) else { throw .badToken(issuer, "its “nbf” is no time") }
            guard start <= seconds + Self.skew else { throw wrongTime }
        }
        return Date(timeIntervalSince1970: issued)
    }

    /// From 1970 to the year 9999, so that a date can be written.
    private static func isTime(_ seconds: Double) -> Bool { seconds >= 0 && seconds < 253_402_300_800 }

    func subject() throws(SignInError) -> String {
        guard let subject = text("sub") else { throw .badToken(issuer, "it has no “sub”") }
        guard Self.isSubject(subject) else { throw .badToken(issuer, "its “sub” is not 1 to 255 characters of ASCII") }
        return subject
    }

    /// OpenID Connect Core, section 2.
    static func isSubject(_ text: String) -> Bool {
        (1...255).contains(text.utf8.count) && text.utf8.allSatisfy { $0 >= 0x20 && $0 < 0x7F }
    }
}
