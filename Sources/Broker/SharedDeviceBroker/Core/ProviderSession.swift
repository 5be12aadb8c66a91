import DeviceConfiguration
package import FoundationEssentials
package import Identity

/// The part of the provider's session that the broker stores for the open session of the device.
package struct ProviderSession: Sendable, Equatable {
    /// The provider and the client of the session. Settings with another provider or client end the session.
    package let issuer: String
    package let client: String
    /// The provider's record; `nil` if it was only in memory and the broker was restarted. The person then has to sign
    /// in again before apps get tokens.
    package internal(set) var record: ProviderRecord?
    /// When the provider last confirmed that the person is signed in, by the wall clock.
    package internal(set) var checkedAt: Date
    /// When the person last authenticated, and when that sign-in began, by the wall clock.
    package let provedAt: Date
    package let beganAt: Date
    /// Whether the provider requires the person before it issues a token. A restart of the broker does not change this.
    package internal(set) var needsPerson = false
    /// Whether every renewal with the record's token has a response. It is set to `false` and committed before a
    /// renewal is sent.
    ///
    /// If a start finds `true`, the token is valid: a refusal is the provider's decision, and not the effect of a token
    /// that was used twice.
    package var isSettled = false
}

extension ProviderSession {
    init(_ settings: OrganisationSettings, record: ProviderRecord, since began: Date, at now: Moment) {
        self.init(
            issuer: settings.issuer.text,
            client: settings.clientIdentifier,
            record: record,
            checkedAt: now.wall,
            provedAt: now.wall,
            beganAt: began,
            isSettled: true
        )
    }

    func isOf(_ settings: OrganisationSettings) -> Bool {
        issuer.utf8.elementsEqual(settings.issuer.text.utf8)
            && client.utf8.elementsEqual(settings.clientIdentifier.utf8)
    }
}

extension BrokerState {
    /// The state of the session with the provider and of the requests to it.
    struct Provider: Sendable {
        // MARK: The session

        /// The session; `nil` if no account is signed in, or if the account belongs to another directory.
        var session: ProviderSession?
        /// When the provider last confirmed that the person is signed in.
        private(set) var lastGood = Duration.zero
        /// The latest ID token.
        var identity: IdentityToken?
        /// Whether the provider requires the person before it issues a token. Without a record the provider is not
        /// asked.
        var needsPerson: Bool { session.map { $0.needsPerson || $0.record == nil } ?? false }
        /// When the provider began to require the person; `nil` if that was before this run of the broker.
        var demandedAt: Duration?
        /// Grows with each sign-in of the person. Renewals of an earlier generation are ignored.
        var generation: UInt64 = 0
        /// The change that stores the newest record. No token is handed out before it is committed.
        var change: UInt64 = 0

        // MARK: Requests

        /// Whether the identity service responds. It serves only the owner of the broker's bus name.
        ///
        /// At a start the broker does not own the name yet. A renewal that is refused for that reason would not be
        /// repeated before the next check.
        var isReachable = false
        /// When the next check is due, with or without a request of an app.
        var nextCheck = Duration.zero
        /// When an early check is due, and when the last one was.
        var soon: Duration?
        var lastSoon: Duration?
        /// When the machine woke up with the grace over or nearly over, for the first time since the provider's last
        /// confirmation.
        var wokeAt: Duration?

        /// Records that the provider confirmed the session at this time.
        mutating func isGood(since time: Duration) { (lastGood, wokeAt) = (time, nil) }
        /// Since when a check has been overdue without a response, whatever the reason.
        var unanswered: Duration?
        var problem: Refusal?
        /// How many renewals have failed in a row, and until when the provider is therefore not asked.
        var failures = 0
        var pausedUntil: Duration?
        /// Whether the record's token may be used up, because a renewal got no response, or revoked with the tokens of
        /// an earlier sign-in.
        var mayBeUsed = false
        /// Whether the broker is about to end. It then sends no renewals.
        var isEnding = false
        var renewal: Renewal?
        var lastNumber: UInt64 = 0
        /// The apps that wait for a token, in order of their requests.
        var queue: [TokenRequest] = []
        /// Limits how often apps cause renewals.
        var pace = QuestionPace()

        // MARK: Ends and events

        var outbox = ProviderOutbox()
        var heard = HeardEvents()
    }

    struct Renewal: Sendable {
        let number: UInt64
        let generation: UInt64
        /// The app's request; `nil` for a check.
        let token: TokenRequest?
        /// The outbox entry that waits for the end of the renewal, if the sign-in is over.
        var held: UInt64?
        /// Whether something was revoked since the renewal was sent, so that its token may be invalid.
        var isDoubtful = false
    }

    struct TokenRequest: Sendable {
        /// The number of the request in ``asked``.
        let number: UInt64
        let participant: Participant
        let scopes: Set<String>
        /// Whether the app named the scopes and gets all of them or none. Otherwise it gets the scopes of its manifest
        /// that are granted.
        let areNamed: Bool
        /// Whether the app asks for a new token instead of a cached one.
        let isRefresh: Bool

        func isSameToken(as other: TokenRequest) -> Bool { participant == other.participant && scopes == other.scopes }
    }
}
