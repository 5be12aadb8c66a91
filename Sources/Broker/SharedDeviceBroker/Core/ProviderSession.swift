import DeviceConfiguration
package import FoundationEssentials
package import Identity

/// What the broker keeps of the organisation's provider for the open session. It ends with the session.
package struct ProviderSession: Sendable, Equatable {
    /// Whom it is of: settings that name another provider or client end the session.
    package let issuer: String
    package let client: String
    /// `nil`: it was in memory only, and the broker was started since. The person has to sign in again for tokens.
    package internal(set) var record: ProviderRecord?
    /// When the provider said last that the person is signed in, by the wall clock.
    package internal(set) var checkedAt: Date
    /// When the person has signed in or proved again who they are, and when that sign-in had begun, by the wall clock.
    package let provedAt: Date
    package let beganAt: Date
    /// Whether the provider wants the person before it gives a token. A start of the broker does not make up for the person.
    package internal(set) var needsPerson = false
    /// Whether no question that has the record's token is without its answer. The disk has it before one is put. A start that finds it so knows that
    /// the token counts: a refusal is the provider's word then, and not due to a token that was used twice.
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
    /// What is under way with the provider.
    struct Provider: Sendable {
        // MARK: The session

        /// `nil` where nobody is signed in, or somebody whom another directory knows.
        var session: ProviderSession?
        /// When the provider said last that the person is signed in.
        private(set) var lastGood = Duration.zero
        /// The provider's word of who has signed in, the last that came.
        var identity: IdentityToken?
        /// Whether the provider wants the person before it gives a token. Without a record it is not asked.
        var needsPerson: Bool { session.map { $0.needsPerson || $0.record == nil } ?? false }
        /// Since when the provider wants the person; `nil`: since before this run of the broker.
        var demandedAt: Duration?
        /// Grows with each sign-in of the person: a renewal from before one brings nothing.
        var generation: UInt64 = 0
        /// The change of the disk that has the newest record. No token is handed out before.
        var change: UInt64 = 0

        // MARK: Questions

        /// Whether the process that speaks to the provider answers: it does so to whoever has the broker's name on the bus. At a start the broker
        /// does not have it yet, and a question that is refused would not be put again before the next check.
        var isReachable = false
        /// When the next renewal is due, with or without an app that asks.
        var nextCheck = Duration.zero
        /// When one is due before that, because there is a reason to ask; and when one was so last.
        var soon: Duration?
        var lastSoon: Duration?
        /// When the machine has woken with the grace over or about to be, the first time since the provider's last good word.
        var wokeAt: Duration?

        /// The provider has said at this time that the person is signed in.
        mutating func isGood(since time: Duration) { (lastGood, wokeAt) = (time, nil) }
        /// Since when a renewal is due that has brought no answer, whatever keeps it away.
        var unanswered: Duration?
        /// Why the last renewal brought nothing.
        var problem: Refusal?
        /// How many renewals in a row brought nothing, and until when the provider is left alone therefore.
        var failures = 0
        var pausedUntil: Duration?
        /// Whether a renewal had no answer, so that the record's token may be used up.
        var mayBeUsed = false
        /// Whether the broker is about to end: nothing more is asked.
        var isEnding = false
        var renewal: Renewal?
        var lastNumber: UInt64 = 0
        /// Apps that wait for a token, in their order.
        var queue: [TokenRequest] = []
        /// How often they have the provider asked.
        var pace = QuestionPace()

        // MARK: What is told

        /// What the provider is still to be told.
        var outbox = ProviderOutbox()
        /// What it has told while somebody signs in.
        var heard = HeardEvents()
    }

    /// A question to the provider.
    struct Renewal: Sendable {
        let number: UInt64
        let generation: UInt64
        /// `nil` for a check that no app has asked for.
        let token: TokenRequest?
        /// The entry of the outbox that waits for its end, where the sign-in is over meanwhile.
        var held: UInt64?
        /// Whether something was revoked meanwhile, so that its token may not count.
        var isDoubtful = false
    }

    /// An app that waits for a token.
    struct TokenRequest: Sendable {
        /// Of the request in ``asked``.
        let number: UInt64
        let participant: Participant
        let scopes: Set<String>
        /// Whether the app has named them: then it gets all or none. Otherwise it gets what is granted of its manifest's.
        let areNamed: Bool
        /// Whether the app wants a new one.
        let isRefresh: Bool

        func isSameToken(as other: TokenRequest) -> Bool { participant == other.participant && scopes == other.scopes }
    }
}
