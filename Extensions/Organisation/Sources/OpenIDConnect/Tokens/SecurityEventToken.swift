import Basics
package import Cryptography
package import FoundationEssentials
package import Identity

/// An event about a person or a device, as a provider reports it (RFC 8417; OpenID Shared Signals Framework 1.0; CAEP
/// and RISC).
package struct SecurityEventToken: Sendable, Hashable {
    /// The kinds of event that matter to this device.
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

    /// The events of the token; other kinds are left out.
    package let events: Set<Event>
    /// The person: `sub_id` of format `iss_sub` with our issuer; `nil` for other formats, and for the stream itself.
    package let subject: String?
    /// The single session that the event concerns: the member `session` of a complex `sub_id`, of format `opaque`.
    package let session: String?
    /// The device that the event concerns: `sub_id`, or the member `device` of a complex one, of format `opaque`.
    package let device: String?
    /// Whether `sub_id` has members that this device cannot compare: another format, a group, an application. They may
    /// exclude this device's session.
    package let isNarrower: Bool
    /// For ``Event/deviceComplianceChange``: Whether the device complies now; `nil` if the event does not say.
    package let isCompliant: Bool?
    /// When the event happened: `event_timestamp`, or else the token's `iat`.
    package let date: Date
    /// `jti`, which acknowledges the token.
    package let identifier: String

    /// - Throws: `IdentityError`, also for an ID token in the role of an event token.
    package init(_ token: VerifiedToken, issuer: Issuer, audience: String, now: Date) throws(IdentityError) {
        let claims = TokenClaims(token, of: issuer)
        try claims.checkType(["secevent+jwt"], needed: true)
        try claims.checkIssuer()
        try claims.checkAudience(audience, mayBeOthers: true)
        try claims.checkTimes(now: now, needsEnd: false)
        for name in ["exp", "sub"] where claims.json[name] != nil {
            throw .badToken(issuer, "“\(name)” is in its event token")
        }
        identifier = try claims.identifier()
        guard let events = claims.json["events"]?.object, !events.isEmpty else {
            throw claims.flaw("events", "an object with a member")
        }
        self.events = Set(Event.allCases.filter { events[$0.name]?.object != nil })
        switch events[Event.deviceComplianceChange.name]?["current_status"]?.string {
        case "compliant": isCompliant = true
        case "not-compliant": isCompliant = false
        default: isCompliant = nil
        }
        date = try Self.date(of: self.events.compactMap { events[$0.name] }, claims, issuer)
        let about = claims.json["sub_id"]
        let isComplex = about?["format"]?.string == "complex"
        // A complex subject has the person in its member `user`.
        let user = isComplex ? about?["user"] : about
        session = isComplex ? Self.opaque(about?["session"]) : nil
        device = Self.opaque(isComplex ? about?["device"] : about)
        subject = try Self.subject(user, issuer)
        let members = isComplex ? Set((about?.object ?? [:]).keys).subtracting(["format"]) : []
        let isKnown = ["user": subject != nil, "session": session != nil, "device": device != nil]
        isNarrower = members.contains { isKnown[$0] != true }
    }

    /// The latest `event_timestamp` in milliseconds or seconds (CAEP 1.0, section 2); without one, `iat`.
    private static func date(
        of events: [JSONValue],
        _ claims: TokenClaims,
        _ issuer: Issuer
    ) throws(IdentityError) -> Date {
        // `checkTimes` has already required a valid `iat`.
        let issued = claims.json["iat"]?.number ?? 0
        let times = events.compactMap { $0["event_timestamp"]?.number }
        // Early drafts use milliseconds. An event cannot be later than the token that reports it.
        let seconds = times.map { $0 > 100_000_000_000 ? $0 / 1000 : $0 }.max() ?? issued
        guard seconds >= 0 else { throw .badToken(issuer, "“event_timestamp” of its token is no time") }
        return Date(timeIntervalSince1970: min(seconds, issued))
    }

    private static func subject(_ user: JSONValue?, _ issuer: Issuer) throws(IdentityError) -> String? {
        guard user?["format"]?.string == "iss_sub", let name = user?["iss"]?.string, issuer.isNamed(name) else {
            return nil
        }
        guard let subject = user?["sub"]?.string, TokenClaims.isSubject(subject) else {
            throw .badToken(issuer, "“sub” of “sub_id” of its token is not 1 to 255 characters of ASCII")
        }
        return subject
    }

    /// An opaque identifier, which only the provider understands (RFC 9493, section 3.2.6).
    private static func opaque(_ value: JSONValue?) -> String? {
        guard value?["format"]?.string == "opaque", let text = value?["id"]?.string,
            // D-Bus strings contain no NUL. A token that cannot be reported would be delivered again forever.
            (1...255).contains(text.utf8.count), !text.utf8.contains(0)
        else { return nil }
        return text
    }
}
