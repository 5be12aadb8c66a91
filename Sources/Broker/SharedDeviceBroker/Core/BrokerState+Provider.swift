import DBusTransport
import DeviceConfiguration
package import FoundationEssentials
package import Identity
import Logging
import SharedDevice

/// What the broker keeps of the organisation's provider for the open session. It ends with the session.
package struct ProviderSession: Sendable, Equatable {
    /// Whom it is of: settings that name another provider or client end the session.
    package let issuer: String
    package let client: String
    /// `nil`: it was in memory only, and the broker was started since. The person has to sign in again for tokens.
    package internal(set) var record: ProviderRecord?
    /// When the provider said last that the person is signed in, by the wall clock.
    package internal(set) var checkedAt: Date
    /// Whether the provider wants the person before it gives a token. A start of the broker does not make up for the person.
    package internal(set) var needsPerson: Bool

    package init(
        issuer: String,
        client: String,
        record: ProviderRecord?,
        checkedAt: Date,
        needsPerson: Bool = false
    ) {
        self.issuer = issuer
        self.client = client
        self.record = record
        self.checkedAt = checkedAt
        self.needsPerson = needsPerson
    }

    init(_ settings: OrganisationSettings, record: ProviderRecord, at now: Moment) {
        self.init(
            issuer: settings.issuer.text,
            client: settings.clientIdentifier,
            record: record,
            checkedAt: now.wall
        )
    }

    func isOf(_ settings: OrganisationSettings) -> Bool {
        issuer.utf8.elementsEqual(settings.issuer.text.utf8)
            && client.utf8.elementsEqual(settings.clientIdentifier.utf8)
    }
}

/// Tokens of the organisation's provider, and whether the person may still be signed in. Both are one question to the provider, a renewal,
/// and one renewal at a time is under way, because providers revoke all tokens of a sign-in where one is used twice.
extension BrokerState {
    /// What is under way with the provider.
    struct Provider: Sendable {
        /// `nil` where nobody is signed in, or somebody whom another directory knows.
        var session: ProviderSession?
        /// When the provider said last that the person is signed in, or wanted the person.
        var lastGood = Duration.zero
        /// When the next renewal is due, with or without an app that asks; and until when the provider wants to be left alone.
        var (nextCheck, restsUntil) = (Duration.zero, Duration.zero)
        /// When one is due before that, because there is a reason to ask; and when one was so last.
        var soon: Duration?
        var lastSoon: Duration?
        /// When the person has signed in or proved again who they are, by the wall clock.
        var provedAt = Date.distantPast
        /// The provider's word of who has signed in, the last that came.
        var identity: IdentityToken?
        /// Whether a renewal had no answer, so that the record's token may be used up.
        var mayBeUsed = false
        /// Whether the provider wants the person before it gives a token.
        var needsPerson = false
        /// Why the last renewal brought nothing.
        var problem: Refusal?
        /// The change of the disk that has the newest record. No token is handed out before.
        var change: UInt64 = 0
        /// Grows with each sign-in of the person: a renewal from before one brings nothing.
        var generation: UInt64 = 0
        var renewal: Renewal?
        var lastNumber: UInt64 = 0
        /// Apps that wait for a token, in their order.
        var queue: [TokenRequest] = []
        var outbox = ProviderOutbox()
    }

    /// A question to the provider.
    struct Renewal: Sendable {
        let number: UInt64
        let generation: UInt64
        /// `nil` for a check that no app has asked for.
        let token: TokenRequest?
        /// The entry of the outbox that waits for its end, where the session has ended meanwhile.
        var held: UInt64?
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

        func isSameToken(as other: TokenRequest) -> Bool {
            participant == other.participant && scopes == other.scopes
        }
    }

    /// How many apps wait for a token at a time.
    static let longestQueue = 256

    // MARK: Tokens

    /// Gives the app a token of the provider: one that is there, or else a new one.
    mutating func acquireProviderToken(
        _ request: Request,
        _ participant: Participant,
        _ account: Account,
        _ wanted: Set<String>,
        refresh: Bool
    ) throws(Refusal) -> BrokerProtocol.Fields? {
        let scopes = try scopes(wanted, for: participant)
        let token = TokenRequest(
            number: request.number,
            participant: participant,
            scopes: scopes,
            areNamed: !wanted.isEmpty,
            isRefresh: refresh
        )
        if let kept = keptToken(for: token) {
            try checkGrant(kept, for: token)
            return try handOver(request, participant, Grant(account: account, epoch: device.epoch, token: kept))
        }
        if provider.needsPerson { throw personNeeded }
        if now.uptime < provider.restsUntil, let problem = provider.problem { throw problem }
        try checkRoom(of: participant.user, isPassword: false)
        guard provider.queue.count < Self.longestQueue else { throw .tooManyQuestions }
        let purpose = Asked.Purpose.token(scopes: scopes, epoch: device.epoch, identifier: account.identifier)
        asked[request.number] = Asked(request: request, participant: participant, purpose: purpose)
        provider.queue.append(token)
        return nil
    }

    /// What the app may ask for, by its manifest. An app that names nothing gets all of that.
    private func scopes(_ wanted: Set<String>, for participant: Participant) throws(Refusal) -> Set<String> {
        let rights = eligibility.manifest(of: participant.app)?.tokens ?? TokenRights()
        guard !rights.scopes.isEmpty else { throw .noScopes }
        let refused = rights.refused(of: wanted)
        guard refused.isEmpty else { throw .refusedScopes(refused) }
        return wanted.isEmpty ? rights.scopes : wanted
    }

    private func keptToken(for request: TokenRequest) -> AccessToken? {
        if request.isRefresh { return nil }
        if let token = tokens.anyToken(for: request.participant, scopes: request.scopes, at: now) { return token }
        // That of the sign-in itself permits whatever was granted then, which may be more than the app may have.
        let rights = eligibility.manifest(of: request.participant.app)?.tokens.scopes ?? []
        guard let token = tokens.common(at: now), token.scopes.isSubset(of: rights),
            request.scopes.isSubset(of: token.scopes)
        else { return nil }
        return token
    }

    // MARK: Asking

    /// Asks the provider, where an app waits or a check is due, and nothing else is under way.
    mutating func askProvider() {
        tellProvider()
        guard let record = provider.session?.record, policy.organisation != nil, provider.renewal == nil,
            !provider.needsPerson, !provider.queue.isEmpty || nextCheck <= now.uptime
        else { return }
        // A record that the disk does not have would be lost with the power, and its predecessor is used up.
        guard disk.committed >= provider.change else {
            if let problem = disk.problem { refuseTokens(.notStored(problem)) }
            return
        }
        provider.lastNumber += 1
        if let soon = provider.soon, soon <= now.uptime { provider.soon = nil }
        let token = provider.queue.first
        provider.renewal = Renewal(number: provider.lastNumber, generation: provider.generation, token: token)
        let (scopes, mayBeUsed) = (token?.scopes ?? [], provider.mayBeUsed)
        effects.append(.renew(provider.lastNumber, record, scopes: scopes, mayBeUsed: mayBeUsed))
    }

    /// When the provider is to be asked or told next.
    var nextLookAtProvider: Duration? {
        var times = [provider.outbox.next]
        if device.account != nil, provider.session != nil, policy.organisation != nil {
            times.append(graceEnd)
            let mayAsk = provider.session?.record != nil && provider.renewal == nil && !provider.needsPerson
            if mayAsk, disk.committed >= provider.change { times.append(nextCheck) }
        }
        return times.compactMap { $0 }.min()
    }

    /// The provider has answered a renewal.
    mutating func renewed(_ number: UInt64, _ outcome: RenewalOutcome) {
        guard let renewal = provider.renewal, renewal.number == number else { return }
        provider.renewal = nil
        if let held = renewal.held {
            // Signed out meanwhile. The newest record is the one that can be ended.
            if case .renewed(_, let record) = outcome { return provider.outbox.release(held, with: record) }
            return provider.outbox.release(held, with: nil)
        }
        // The person has signed in again meanwhile: what the earlier sign-in had counts no more.
        guard renewal.generation == provider.generation, device.account != nil else { return }
        scheduleCheck()
        if provider.problem != nil { touch() }
        provider.problem = nil
        provider.mayBeUsed = false
        switch outcome {
        case .renewed(let token, let record):
            provider.lastGood = now.uptime
            provider.session?.checkedAt = now.wall
            if let record {
                provider.session?.record = record
                keepProviderSession(within: .zero)
            } else {
                keepProviderSession(within: Self.lazyWrite)
            }
            take(token, for: renewal.token)
        case .sessionOver: endByProvider("the provider has ended its session")
        case .reauthenticationNeeded: needPerson()
        case .misconfigured(let error): fail(Refusal(error))
        case .scopeRefused:
            provider.lastGood = now.uptime
            guard let token = renewal.token else { return }
            refuseTokens(.scopesNotGranted) { $0.isSameToken(as: token) }
        case .unavailable(let error, let mayBeUsed):
            provider.mayBeUsed = mayBeUsed
            provider.restsUntil = now.uptime + (error.retryAfter ?? .zero)
            let grace = policy.organisation?.offlineGrace.duration ?? .zero
            let left = (provider.lastGood + grace - now.uptime) / .seconds(1)
            fail(Refusal(error, staysSignedInUntil: now.wall.addingTimeInterval(left)))
        }
    }

    private mutating func take(_ token: AccessToken, for request: TokenRequest?) {
        let token = keepIdentity(token)
        guard let request else { return tokens.keepCommon(token) }
        tokens.store(token, for: request.participant, scopes: request.scopes, at: now)
        let waiting = provider.queue
        for next in waiting {
            guard let kept = next.isSameToken(as: request) ? token : keptToken(for: next) else { continue }
            provider.queue.removeAll { $0.number == next.number }
            guard let asked = asked.removeValue(forKey: next.number), let account = device.account else { continue }
            do throws(Refusal) {
                try checkGrant(kept, for: next)
                let grant = Grant(account: account, epoch: device.epoch, token: kept)
                if let fields = try handOver(asked.request, asked.participant, grant) {
                    reply(asked.request.number, fields)
                }
            } catch {
                refuse(asked.request, error)
            }
        }
    }

    /// Nobody gets a token at the moment. Administrators are told once of each reason.
    private mutating func fail(_ refusal: Refusal) {
        provider.problem = refusal
        refuseTokens(refusal)
        touch()
        let level: Logger.Level = refusal.code == .providerMisconfigured ? .error : .warning
        effects.append(.note(level, "the provider gives no token", ["reason": refusal.description.forLog(1000)]))
    }

    private mutating func refuseTokens(_ refusal: Refusal, where isMeant: (TokenRequest) -> Bool = { _ in true }) {
        let meant = provider.queue.filter(isMeant)
        provider.queue.removeAll(where: isMeant)
        for request in meant {
            if let asked = asked.removeValue(forKey: request.number) { refuse(asked.request, refusal) }
        }
    }

    /// The app does not wait any more. A renewal that is under way for it goes on, because its answer may have a new record.
    mutating func forgetTokenRequest(_ number: UInt64) { provider.queue.removeAll { $0.number == number } }

    mutating func keepProviderSession(within delay: Duration) {
        isProviderDirty = true
        let change = needsDisk(within: delay)
        if delay == .zero { provider.change = change }
    }

    /// The next check: by the configured interval, spread by a tenth, so that not all devices of an organisation ask at a time.
    private mutating func scheduleCheck() {
        guard let interval = policy.organisation?.remoteCheckInterval.duration else { return }
        // Which tenth is no secret: epochs differ from device to device.
        let spread = (device.epoch &* 31 &+ provider.lastNumber &* 17) % 21
        provider.nextCheck = now.uptime + interval * (90 + Int(spread)) / 100
    }

    // MARK: The session

    /// The person is signed in by the provider.
    mutating func openProviderSession(_ signIn: ProviderSignIn) {
        guard let settings = policy.organisation else { return }
        provider.session = ProviderSession(settings, record: signIn.record, at: now)
        provider.generation += 1
        (provider.mayBeUsed, provider.needsPerson, provider.problem) = (false, false, nil)
        (provider.lastGood, provider.restsUntil) = (now.uptime, .zero)
        provider.provedAt = now.wall
        (provider.identity, recordProblem) = (nil, nil)
        tokens.keepCommon(keepIdentity(signIn.token))
        scheduleCheck()
    }

    /// A session that an earlier run of the broker has opened. Whether a renewal was under way at its end is not known.
    mutating func resumeProviderSession(_ session: ProviderSession) {
        provider.session = session
        provider.provedAt = ledger.sessions[device.epoch]?.startedAt ?? .distantPast
        provider.mayBeUsed = true
        provider.needsPerson = session.record == nil || session.needsPerson
        // The clock may have been set since: nobody was checked later than now.
        provider.lastGood = now.uptime - .seconds(max(0, now.wall.timeIntervalSince(session.checkedAt)))
    }

    /// What is kept of the provider for the open session.
    package var providerRecord: ProviderRecord? { provider.session?.record }

    /// What the disk is to have: of the session that is open, or about to be.
    var providerRow: ProviderSession? {
        guard let pending else { return provider.session }
        guard let signIn = pending.asked?.provided, let settings = policy.organisation else { return nil }
        return ProviderSession(settings, record: signIn.record, at: now)
    }

    /// The session is over here: the provider is told afterwards, whatever comes of it.
    mutating func closeProviderSession() {
        guard let session = provider.session else { return }
        let isRenewed = provider.renewal?.generation == provider.generation
        (provider.session, provider.soon, provider.identity) = (nil, nil, nil)
        provider.generation += 1
        (provider.mayBeUsed, provider.needsPerson, provider.problem) = (false, false, nil)
        isProviderDirty = true
        erases = true
        if let record = session.record { tellLater(record, isRenewed: isRenewed) }
        for request in provider.queue {
            guard let asked = asked.removeValue(forKey: request.number),
                case .token(_, _, let identifier) = asked.purpose
            else { continue }
            refuse(asked.request, sessionIsOver(identifier))
        }
        provider.queue = []
    }

    /// What follows when the provider has ended its session, by the managed configuration.
    mutating func endByProvider(_ cause: String) {
        guard provider.session != nil, let next = try? device.signingOut(nil) else { return }
        if policy.organisation?.onProviderSessionEnd == .reauthenticate { return needPerson() }
        enter(next, cause: cause)
        effects.append(.note(.notice, "signed out by the provider", ["reason": cause, "epoch": "\(device.epoch)"]))
    }

    mutating func needPerson() {
        provider.needsPerson = true
        provider.session?.needsPerson = true
        keepProviderSession(within: .zero)
        provider.lastGood = now.uptime
        tokens.drop()
        erases = true
        refuseTokens(personNeeded)
        effects.append(.note(.notice, "the provider wants the person to sign in again", ["epoch": "\(device.epoch)"]))
        touch()
    }

    var personNeeded: Refusal { .signInAgain(provider.session?.issuer ?? "the organisation") }

    /// A configuration is in force: a session that another provider or client knows ends.
    mutating func checkProviderSession() {
        if let pending, pending.asked != nil, (pending.asked?.provided != nil) != (policy.organisation != nil) {
            dropPendingSignIn(because: .requestAbandoned)
        }
        guard device.account != nil, pending == nil else { return }
        let isOfConfiguration =
            switch (provider.session, policy.organisation) {
            case (let session?, let settings?): session.isOf(settings)
            case (nil, nil): true
            default: false
            }
        if !isOfConfiguration, policy.identity != .loginSession {
            signOutAutomatically(because: "the managed configuration")
        }
    }

    /// When the session ends because nobody can say whether it may go on; `nil` while somebody can. Misconfiguration ends no session.
    private var graceEnd: Duration? {
        guard let grace = policy.organisation?.offlineGrace.duration else { return nil }
        if provider.needsPerson { return provider.lastGood + max(grace, Self.promptLifetime) }
        return provider.problem?.code == .providerUnavailable ? provider.lastGood + grace : nil
    }

    /// A session that nobody has checked for too long ends.
    mutating func endOfflineSession() {
        guard provider.session != nil, device.account != nil, let end = graceEnd, end <= now.uptime else { return }
        let seconds = (now.uptime - provider.lastGood).components.seconds
        signOutAutomatically(because: "offline for \(seconds) s")
    }
}
