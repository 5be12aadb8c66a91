import Basics
import DeviceConfiguration
import FoundationEssentials
import Identity
import Logging
import SharedDevice

/// Renewals: requests to the organisation's provider. One renewal both gets a token for an app and checks whether the
/// person may stay signed in.
///
/// Only one renewal is in flight at a time. A provider revokes all tokens of a sign-in if a refresh token is used
/// twice.
extension BrokerState {
    /// How long an overdue check may stay unanswered before the session can end. It is a little longer than the
    /// identity service's time for a response.
    static let answerPatience = Duration.seconds(90)
    /// The longest pause after failed renewals, and the longest pause that the provider may request.
    ///
    /// There is no pause after the first failure, because a process that was just started may succeed at once. After
    /// the second failure the pause is 2 s, and it doubles with each further failure.
    static let (longestRest, longestWish) = (Duration.seconds(60), Duration.seconds(300))

    // MARK: Timing

    /// When the provider is asked next. A pause also delays an early check.
    var nextCheck: Duration {
        max(min(provider.nextCheck, provider.soon ?? provider.nextCheck), provider.pausedUntil ?? .zero)
    }

    /// Whether the provider is not asked for now, because the last renewal failed.
    var isProviderPaused: Bool { provider.pausedUntil.map { now.uptime < $0 } ?? false }

    /// Whether the session and the configuration permit a renewal, ignoring one in flight.
    private var mayAskProvider: Bool {
        provider.session?.record != nil && policy.organisation != nil && !provider.needsPerson && !provider.isEnding
    }

    /// When the next renewal or the next report of a session's end is due, or when the session ends for lack of
    /// confirmation.
    var nextLookAtProvider: Duration? {
        var times = [provider.isReachable ? provider.outbox.next : nil]
        if device.account != nil, provider.session != nil, policy.organisation != nil {
            times.append(graceEnd)
            // If a check is overdue and something blocks it, no wake-up is needed: the obstacle ends with an event, or
            // the session ends.
            let isFree = provider.isReachable && provider.renewal == nil && disk.committed >= provider.change
            if mayAskProvider, isFree || provider.unanswered == nil { times.append(nextCheck) }
        }
        return times.compactMap { $0 }.min()
    }

    /// Schedules the next check: after the configured interval, varied by up to a tenth, so that the devices of an
    /// organisation do not all ask at once.
    mutating func scheduleCheck() {
        provider.unanswered = nil
        guard let interval = policy.organisation?.remoteCheckInterval.duration else { return }
        // A predictable variation is enough, because epochs differ between devices.
        let spread = (device.epoch &* 31 &+ provider.lastNumber &* 17) % 21
        provider.nextCheck = now.uptime + interval * (90 + Int(spread)) / 100
    }

    /// Pauses requests to the provider after a failure.
    ///
    /// - Parameter wish: The provider's Retry-After.
    private mutating func pauseProvider(_ wish: Duration?) {
        let pause = provider.failures == 0 ? .zero : min(.seconds(1 << min(provider.failures, 6)), Self.longestRest)
        provider.failures += 1
        provider.pausedUntil = now.uptime + max(pause, min(wish ?? .zero, Self.longestWish))
    }

    // MARK: Requests

    /// Sends a renewal if an app waits or a check is due, and no renewal is in flight. Also sends the next report of a
    /// session's end that is due.
    mutating func askProvider() {
        tellProvider()
        guard mayAskProvider, let record = provider.session?.record else { return }
        let isDue = nextCheck <= now.uptime
        if isDue, provider.unanswered == nil { provider.unanswered = now.uptime }
        guard provider.isReachable, provider.renewal == nil, isDue || !provider.queue.isEmpty else { return }
        // A power cut would lose a record that is not committed, and its predecessor is used up.
        guard disk.committed >= provider.change else {
            if let problem = disk.problem { refuseTokens(.failed(problem)) }
            return
        }
        guard provider.session?.isSettled == false else { return keepQuestion(isOpen: true) }
        provider.lastNumber += 1
        if let soon = provider.soon, soon <= now.uptime { provider.soon = nil }
        // A check requests no scopes, because a refusal of scopes says nothing about the session.
        let token = isDue ? nil : provider.queue.first
        if let token { provider.pace.take(asker(token.participant), at: now.uptime) }
        provider.renewal = Renewal(number: provider.lastNumber, generation: provider.generation, token: token)
        let mayBeUsed = provider.mayBeUsed || provider.outbox.revokes(record.person)
        let scopes = token?.scopes ?? []
        effects.append(.renew(provider.lastNumber, record, scopes: scopes, mayBeUsed: mayBeUsed))
    }

    /// Stores whether a renewal is unanswered.
    ///
    /// This is committed before the renewal is sent: otherwise the next start could mistake the device's own second use
    /// of a token for a refusal by the provider. It is cleared after the response: otherwise a start could mistake a
    /// refusal for a second use.
    private mutating func keepQuestion(isOpen: Bool) {
        guard let session = provider.session, session.isSettled == isOpen else { return }
        provider.session?.isSettled = !isOpen
        keepProviderSession(within: isOpen ? .zero : Facts.Disk.lazyWrite)
    }

    /// Notes that the record's token may be revoked: tokens of an earlier sign-in of the person were revoked, and the
    /// provider may have revoked the present ones with them. The next refusal may be due to that, or to a token that
    /// was used twice.
    mutating func doubtRecord(of person: ProviderRecord.Person) {
        guard provider.session?.record?.person == person else { return }
        provider.mayBeUsed = true
        // A token of a renewal in flight may be revoked, too.
        provider.renewal?.isDoubtful = true
        keepQuestion(isOpen: true)
    }

    // MARK: Responses

    mutating func renewed(_ number: UInt64, _ outcome: RenewalOutcome) {
        guard let renewal = provider.renewal, renewal.number == number else { return }
        provider.renewal = nil
        if let held = renewal.held {
            // The renewal's sign-in is over. The entry gets the newest record, because the earlier one is used up and
            // cannot end the session. It is committed, so that a start finds it.
            var newest: ProviderRecord?
            if case .renewed(_, let record) = outcome { newest = record }
            if newest != nil { needsDisk(within: .zero) }
            return provider.outbox.release(held, with: newest)
        }
        // The person has signed in again, so results of the earlier sign-in do not count.
        guard renewal.generation == provider.generation, device.account != nil else { return }
        if case .scopeRefused = outcome, let token = renewal.token {
            // This says nothing about the session or its record, so it delays neither the next check nor the end of the
            // grace.
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
            provider.session?.checkedAt = facts.now.wall
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

    /// Handles the response to a renewal if the provider has asked for the person since it was sent. The response does
    /// not replace the person, so its token is not handed out. A new record is stored with the session, so that the
    /// provider can end it later.
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

    /// Whether the record's token may be used up. An outcome without a check of the token does not confirm that the
    /// token is valid.
    private func mayBeUsed(after outcome: RenewalOutcome, isDoubtful: Bool) -> Bool {
        switch outcome {
        case .renewed: isDoubtful
        case .sessionOver, .reauthenticationNeeded: false
        case .misconfigured, .scopeRefused: provider.mayBeUsed
        case .unavailable(_, let mayBeUsed): mayBeUsed || isDoubtful
        }
    }

    /// Refuses token requests for now, and pauses. Logs the reason for administrators.
    private mutating func fail(_ error: IdentityError) {
        pauseProvider(error.retryAfter)
        let grace = policy.organisation?.offlineGrace.duration ?? .zero
        let left = (provider.lastGood + grace - now.uptime) / .seconds(1)
        let refusal = Refusal(error, staysSignedInUntil: now.wall.addingTimeInterval(left))
        provider.problem = refusal
        refuseTokens(refusal)
        touch()
        let level: Logger.Level = refusal.code == .providerMisconfigured ? .error : .warning
        effects.append(.note(level, "the provider gives no token", ["reason": refusal.description.printable(1000)]))
    }
}
