package import FoundationEssentials
package import JSONWebSignature
import StrictJSON

/// What a provider tells of a person or a device (RFC 8417; OpenID Shared Signals Framework 1.0; CAEP and RISC).
package struct SecurityEventToken: Sendable, Hashable {
    /// What happened, as far as it concerns us.
    package enum Event: Sendable, Hashable, CaseIterable {
        case sessionRevoked, sessionsRevoked, accountDisabled, accountPurged
        case credentialChange
        case deviceComplianceChange
        case verification

        package var name: String {
            let path =
                switch self {
                case .sessionRevoked: "caep/event-type/session-revoked"
                case .credentialChange: "caep/event-type/credential-change"
                case .deviceComplianceChange: "caep/event-type/device-compliance-change"
                case .sessionsRevoked: "risc/event-type/sessions-revoked"
                case .accountDisabled: "risc/event-type/account-disabled"
                case .accountPurged: "risc/event-type/account-purged"
                case .verification: "ssf/event-type/verification"
                }
            return "https://schemas.openid.net/secevent/" + path
        }
    }

    /// Others that the token may have are left out.
    package let events: Set<Event>
    /// Whom it is about: `sub_id` of format `iss_sub` with our issuer; `nil` for other formats, and for the stream itself.
    package let subject: String?
    /// The one session that it is about: the member `session` of a complex `sub_id`, of format `opaque`.
    package let session: String?
    /// The device that it is about: `sub_id`, or the member `device` of a complex one, of format `opaque`.
    package let device: String?
    /// Whether `sub_id` narrows the subject down by members that nobody here can compare: another format, a group, an application.
    package let isNarrower: Bool
    /// With ``Event/deviceComplianceChange``: whether the device complies now; `nil` where the event does not say.
    package let isCompliant: Bool?
    /// When it happened: `event_timestamp`, or else when the token was issued.
    package let date: Date
    /// `jti`, by which it is acknowledged.
    package let identifier: String

    /// - Throws: `SignInError`, also for an ID token that is to pass for one.
    package init(_ token: VerifiedToken, issuer: Issuer, audience: String, now: Date) throws(SignInError) {
        let claims = TokenClaims(token, of: issuer)
        try claims.checkType(["secevent+jwt"], needed: true)
        try claims.checkIssuer()
        try claims.checkAudience(audience, mayBeOthers: true)
        try claims.checkTimes(now: now, needsEnd: false)
        for name in ["exp", "sub"] where claims.json[name] != nil {
            throw .badToken(issuer, "“\(name)” is in its event token")
        }
        guard let identifier = claims.text("jti"), (1...255).contains(identifier.utf8.count) else {
            throw claims.flaw("jti", "a text of 1 to 255 bytes")
        }
        guard let events = claims.json["events"]?.object, !events.isEmpty else {
            throw claims.flaw("events", "an object with a member")
        }
        self.identifier = identifier
        self.events = Set(Event.allCases.filter { events[$0.name]?.object != nil })
        switch events[Event.deviceComplianceChange.name]?["current_status"]?.string {
        case "compliant": isCompliant = true
        case "not-compliant": isCompliant = false
        default: isCompliant = nil
        }
        date = try Self.date(of: self.events.compactMap { events[$0.name] }, claims, issuer)
        let about = claims.json["sub_id"]
        let isComplex = about?["format"]?.string == "complex"
        // A complex subject has the person as its member `user`.
        let user = isComplex ? about?["user"] : about
        session = isComplex ? Self.opaque(about?["session"]) : nil
        device = Self.opaque(isComplex ? about?["device"] : about)
        subject = try Self.subject(user, issuer)
        let members = isComplex ? Set((about?.object ?? [:]).keys).subtracting(["format"]) : []
        let isKnown = [
            "user": subject != nil, "session": session != nil, "device": device != nil,
        ]
        isNarrower = members.contains { isKnown[$0] != true }
    }

    /// `event_timestamp` of the events in milliseconds or seconds (CAEP 1.0, section 2), the latest; without one `iat`.
    private static func date(
        of events: [JSONValue],
        _ claims: TokenClaims,
        _ issuer: Issuer
    ) throws(SignInError) -> Date {
        // Checked to be there and a time.
        let issued = claims.json["iat"]?.number ?? 0
        let times = events.compactMap { $0["event_timestamp"]?.number }
        // Early drafts had milliseconds. An event is not younger than the token that tells of it.
        let seconds = times.map { $0 > 100_000_000_000 ? $0 / 1000 : $0 }.max() ?? issued
        guard seconds >= 0 else { throw .badToken(issuer, "“event_timestamp” of its token is no time") }
        return Date(timeIntervalSince1970: min(seconds, issued))
    }

    private static func subject(_ user: JSONValue?, _ issuer: Issuer) throws(SignInError) -> String? {
        guard user?["format"]?.string == "iss_sub", let name = user?["iss"]?.string, issuer.isNamed(name) else {
            return nil
        }
        guard let subject = user?["sub"]?.string, TokenClaims.isSubject(subject) else {
            throw .badToken(issuer, "“sub” of “sub_id” of its token is not 1 to 255 characters of ASCII")
        }
        return subject
    }

    /// An identifier that means something to the provider alone (RFC 9493, section 3.2.6).
    private static func opaque(_ value: JSONValue?) -> String? {
        guard value?["format"]?.string == "opaque", let text = value?["id"]?.string,
            // The bus carries no NUL, and a token that cannot be told would come again without end.
            (1...255).contains(text.utf8.count), !text.utf8.contains(0)
        else { return nil }
        return text
    }
}
