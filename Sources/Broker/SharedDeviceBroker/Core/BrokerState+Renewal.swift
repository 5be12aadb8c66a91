import DeviceConfiguration
import FoundationEssentials
import Identity
import Logging
import SharedDevice

/// Questions to the organisation's provider. A token for an app, and whether the person may still be signed in, are one question, a renewal, and one
/// renewal at a time is under way, because providers revoke all tokens of a sign-in where one is used twice.
extension BrokerState {
    /// How long a question that is due may take, until nobody can say any more whether the session may go on: as long as the process that carries it
    /// out has for its answer, and a little more.
    static let answerPatience = Duration.seconds(90)
    /// The longest pause after renewals that brought nothing, and the longest one that the provider may ask for. After the first there is none, because
    /// a process that was just started may know better at once; after the second it is 2 s, and then each time twice the one before.
    static let (longestRest, longestWish) = (Duration.seconds(60), Duration.seconds(300))

    // MARK: When

    /// When the provider is asked next. It is left alone also where there is a reason to ask at once.
    var nextCheck: Duration {
        max(min(provider.nextCheck, provider.soon ?? provider.nextCheck), provider.pausedUntil ?? .zero)
    }

    /// Whether the provider is left alone, because it gave nothing when it was asked last.
    var isProviderPaused: Bool { provider.pausedUntil.map { now.uptime < $0 } ?? false }

    /// Whether the provider could be asked, were nothing else under way.
    private var mayAskProvider: Bool {
        provider.session?.record != nil && policy.organisation != nil && !provider.needsPerson && !provider.isEnding
    }

    /// When the provider is to be asked or told next.
    var nextLookAtProvider: Duration? {
        var times = [provider.isReachable ? provider.outbox.next : nil]
        if device.account != nil, provider.session != nil, policy.organisation != nil {
            times.append(graceEnd)
            // From when it is due on, what keeps the question back ends by itself, or the session does.
            let isFree = provider.isReachable && provider.renewal == nil && disk.committed >= provider.change
            if mayAskProvider, isFree || provider.unanswered == nil { times.append(nextCheck) }
        }
        return times.compactMap { $0 }.min()
    }

    /// The next check: by the configured interval, spread by a tenth, so that not all devices of an organisation ask at a time.
    mutating func scheduleCheck() {
        provider.unanswered = nil
        guard let interval = policy.organisation?.remoteCheckInterval.duration else { return }
        // Which tenth is no secret: epochs differ from device to device.
        let spread = (device.epoch &* 31 &+ provider.lastNumber &* 17) % 21
        provider.nextCheck = now.uptime + interval * (90 + Int(spread)) / 100
    }

    /// The provider is left alone for a while.
    ///
    /// - Parameter wish: how long it wants to be.
    private mutating func pauseProvider(_ wish: Duration?) {
        let pause = provider.failures == 0 ? .zero : min(.seconds(1 << min(provider.failures, 6)), Self.longestRest)
        provider.failures += 1
        provider.pausedUntil = now.uptime + max(pause, min(wish ?? .zero, Self.longestWish))
    }

    // MARK: Asking

    /// Asks the provider, where an app waits or a check is due, and nothing else is under way.
    mutating func askProvider() {
        tellProvider()
        guard mayAskProvider, let record = provider.session?.record else { return }
        let isDue = nextCheck <= now.uptime
        if isDue, provider.unanswered == nil { provider.unanswered = now.uptime }
        guard provider.isReachable, provider.renewal == nil, isDue || !provider.queue.isEmpty else { return }
        // A record that the disk does not have would be lost with the power, and its predecessor is used up.
        guard disk.committed >= provider.change else {
            if let problem = disk.problem { refuseTokens(.failed(problem)) }
            return
        }
        guard provider.session?.isSettled == false else { return keepQuestion(isOpen: true) }
        provider.lastNumber += 1
        if let soon = provider.soon, soon <= now.uptime { provider.soon = nil }
        // Scopes that are refused say nothing of the session: a check that is due asks for none.
        let token = isDue ? nil : provider.queue.first
        if let token { provider.pace.take(asker(token.participant), at: now.uptime) }
        provider.renewal = Renewal(number: provider.lastNumber, generation: provider.generation, token: token)
        let mayBeUsed = provider.mayBeUsed || provider.outbox.revokes(record.person)
        let scopes = token?.scopes ?? []
        effects.append(.renew(provider.lastNumber, record, scopes: scopes, mayBeUsed: mayBeUsed))
    }

    /// Has the disk know whether a question is without its answer: before it is put, or the next start would take the device's own second use of a
    /// token for the provider's refusal; and after its answer, or it would take a refusal for a second use.
    private mutating func keepQuestion(isOpen: Bool) {
        guard let session = provider.session, session.isSettled == isOpen else { return }
        provider.session?.isSettled = !isOpen
        keepProviderSession(within: isOpen ? .zero : Self.lazyWrite)
    }

    /// Tokens of an earlier sign-in of this person's are revoked, and a provider may have revoked those of the present one with them: the next refusal
    /// may be due to that, as it may be due to a token that was used twice.
    mutating func doubtRecord(of person: ProviderRecord.Person) {
        guard provider.session?.record?.person == person else { return }
        provider.mayBeUsed = true
        // A token that is on its way may be revoked, too.
        provider.renewal?.isDoubtful = true
        keepQuestion(isOpen: true)
    }

    // MARK: Answers

    /// The provider has answered a renewal.
    mutating func renewed(_ number: UInt64, _ outcome: RenewalOutcome) {
        guard let renewal = provider.renewal, renewal.number == number else { return }
        provider.renewal = nil
        if let held = renewal.held {
            // That sign-in is over meanwhile. The newest record is the one that can be ended, and a start has to find it: the one before is used up.
            var newest: ProviderRecord?
            if case .renewed(_, let record) = outcome { newest = record }
            if newest != nil { needsDisk(within: .zero) }
            return provider.outbox.release(held, with: newest)
        }
        // The person has signed in again meanwhile: what the earlier sign-in had counts no more.
        guard renewal.generation == provider.generation, device.account != nil else { return }
        if case .scopeRefused = outcome, let token = renewal.token {
            // It says nothing of the session or its record: it puts off neither the next check nor the end of the grace.
            refuseTokens(.scopesNotGranted) { $0.isSameToken(as: token) }
            provider.pace.note(token.scopes, to: asker(token.participant))
            return keepQuestion(isOpen: provider.mayBeUsed)
        }
        scheduleCheck()
        if provider.needsPerson { return renewedInVain(outcome) }
        if provider.problem != nil { touch() }
        provider.problem = nil
        provider.mayBeUsed = mayBeUsed(after: outcome, isDoubtful: renewal.isDoubtful)
        (provider.pausedUntil, provider.failures) = (nil, isNothing(outcome) ? provider.failures : 0)
        switch outcome {
        case .renewed(let token, let record):
            provider.isGood(since: now.uptime)
            provider.session?.checkedAt = now.wall
            if let record {
                provider.session?.record = record
                keepProviderSession(within: .zero)
            }
            take(token, for: renewal.token)
        case .sessionOver: endByProvider("the provider has ended its session")
        case .reauthenticationNeeded: needPerson()
        case .misconfigured(let error): fail(error)
        case .scopeRefused:
            let what = "refuses the scopes of the sign-in (invalid_scope)"
            fail(IdentityError(.providerMisconfigured, "\(provider.session?.issuer ?? "the provider") \(what)"))
        case .unavailable(let error, _): fail(error)
        }
        keepQuestion(isOpen: provider.mayBeUsed)
    }

    /// The person is wanted since the question was put, and an answer does not make up for them: nobody gets its token. What it has is kept with the
    /// session, because at its end the provider is to be told of all.
    private mutating func renewedInVain(_ outcome: RenewalOutcome) {
        switch outcome {
        case .renewed(_, let record?):
            provider.session?.record = record
            keepProviderSession(within: .zero)
        case .sessionOver: endByProvider("the provider has ended its session")
        case .renewed, .reauthenticationNeeded, .misconfigured, .scopeRefused, .unavailable: break
        }
    }

    private func isNothing(_ outcome: RenewalOutcome) -> Bool {
        switch outcome {
        case .misconfigured, .unavailable, .scopeRefused: true
        case .renewed, .sessionOver, .reauthenticationNeeded: false
        }
    }

    /// Whether the record's token may be used up. Who did not look at the token has not said that it counts.
    private func mayBeUsed(after outcome: RenewalOutcome, isDoubtful: Bool) -> Bool {
        switch outcome {
        case .renewed: isDoubtful
        case .sessionOver, .reauthenticationNeeded: false
        case .misconfigured, .scopeRefused: provider.mayBeUsed
        case .unavailable(_, let mayBeUsed): mayBeUsed || isDoubtful
        }
    }

    /// Nobody gets a token at the moment. Administrators are told once of each reason.
    private mutating func fail(_ error: IdentityError) {
        pauseProvider(error.retryAfter)
        let grace = policy.organisation?.offlineGrace.duration ?? .zero
        let left = (provider.lastGood + grace - now.uptime) / .seconds(1)
        let refusal = Refusal(error, staysSignedInUntil: now.wall.addingTimeInterval(left))
        provider.problem = refusal
        refuseTokens(refusal)
        touch()
        let level: Logger.Level = refusal.code == .providerMisconfigured ? .error : .warning
        effects.append(.note(level, "the provider gives no token", ["reason": refusal.description.forLog(1000)]))
    }
}
