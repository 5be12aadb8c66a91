import DeviceConfiguration
import FoundationEssentials
package import Identity
import Logging
import SharedDevice

/// The session of the organisation's provider beside the device's: its beginning and end, what the disk has of it, and how long it lasts without the
/// provider's word.
extension BrokerState {
    // MARK: Beginning

    /// The person is signed in by the provider.
    ///
    /// - Parameter began: when that sign-in has begun.
    mutating func openProviderSession(_ signIn: ProviderSignIn, since began: Duration) {
        guard let settings = policy.organisation else { return }
        provider.session = ProviderSession(settings, record: signIn.record, since: date(of: began), at: now)
        provider.generation += 1
        forgetQuestions()
        provider.isGood(since: now.uptime)
        (provider.identity, recordProblem) = (nil, nil)
        tokens.keepCommon(keepIdentity(signIn.token))
        scheduleCheck()
    }

    /// Answers about an earlier sign-in say nothing of the next one.
    private mutating func forgetQuestions() {
        (provider.mayBeUsed, provider.problem, provider.unanswered) = (false, nil, nil)
        (provider.demandedAt, provider.pausedUntil, provider.failures) = (nil, nil, 0)
    }

    /// A session that an earlier run of the broker has opened.
    mutating func resumeProviderSession(_ session: ProviderSession) {
        provider.session = session
        provider.mayBeUsed = !session.isSettled
        if !session.needsPerson { provider.demandedAt = now.uptime }
        // The clock may have been set since: nobody was checked later than now.
        provider.isGood(since: now.uptime - .seconds(max(0, now.wall.timeIntervalSince(session.checkedAt))))
        provider.nextCheck = now.uptime
    }

    /// The same person has proved again who they are. The tokens of before are revoked, where they are of another session at the provider: those of
    /// the same one end with it, and to revoke them might end it.
    mutating func replaceProviderSession(_ signIn: ProviderSignIn, since began: Duration) {
        if let old = provider.session?.record, old.session == nil || old.session != signIn.record.session {
            tellLater(old, keepsSession: true, isRenewed: isRenewed)
        }
        openProviderSession(signIn, since: began)
        keepProviderSession(within: .zero)
    }

    /// Whether a renewal of the present record is under way.
    private var isRenewed: Bool { provider.renewal?.generation == provider.generation }

    // MARK: The disk

    /// What is kept of the provider for the open session.
    package var providerRecord: ProviderRecord? { provider.session?.record }

    /// What the disk is to have: of the session that is open, or about to be.
    var providerRow: ProviderSession? {
        guard let pending else { return provider.session }
        guard let asked = pending.asked, let signIn = asked.provided, let settings = policy.organisation else {
            return nil
        }
        return ProviderSession(settings, record: signIn.record, since: date(of: asked.beganAt), at: now)
    }

    mutating func keepProviderSession(within delay: Duration) {
        isProviderDirty = true
        let change = needsDisk(within: delay)
        if delay == .zero { provider.change = change }
    }

    // MARK: End

    /// The session is over here: the provider is told afterwards, whatever comes of it.
    mutating func closeProviderSession() {
        guard let session = provider.session else { return }
        let isRenewed = isRenewed
        (provider.session, provider.soon, provider.identity) = (nil, nil, nil)
        provider.generation += 1
        forgetQuestions()
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

    /// The provider wants the person before it gives a token. If it wants them again, they get no more time.
    mutating func needPerson() {
        guard !provider.needsPerson else { return }
        provider.demandedAt = now.uptime
        provider.session?.needsPerson = true
        keepProviderSession(within: .zero)
        tokens.drop()
        erases = true
        refuseTokens(personNeeded)
        effects.append(.note(.notice, "the provider wants the person to sign in again", ["epoch": "\(device.epoch)"]))
        touch()
    }

    var personNeeded: Refusal { .signInAgain(provider.session?.issuer ?? "the organisation") }

    /// A configuration is in force: a session that another provider or client knows ends.
    mutating func checkProviderSession() {
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

    // MARK: Without the provider's word

    /// When the session ends because nobody can say whether it may go on; `nil` while somebody can.
    ///
    /// It counts from the provider's last good word, whatever keeps the next one away: the network, the provider, the configuration, the disk without
    /// which nothing is asked, or the person whom the provider wants. They have the time of a prompt in any case, a question has that of its answer, and
    /// a machine that has slept has as much for its network to come back, once after each good word: who lets it sleep again and again gains no more.
    var graceEnd: Duration? {
        guard let grace = policy.organisation?.offlineGrace.duration else { return nil }
        let word = provider.lastGood + grace
        if provider.needsPerson { return max(word, provider.demandedAt.map { $0 + Self.promptLifetime } ?? word) }
        let end = max(word, provider.wokeAt.map { $0 + Self.answerPatience } ?? word)
        if provider.problem != nil { return end }
        return provider.unanswered.map { max(end, $0 + Self.answerPatience) }
    }

    /// From what on the time without the processor counts as sleep. The clocks are read within a tenth of that.
    static let leastSleep = Duration.seconds(1)

    /// The machine has slept: where the grace is over by now, the question still has its time.
    mutating func wakeWithinGrace() {
        guard provider.wokeAt == nil, let grace = policy.organisation?.offlineGrace.duration,
            provider.lastGood + grace < now.uptime + Self.answerPatience
        else { return }
        provider.wokeAt = now.uptime
    }

    /// A session that nobody has checked for too long ends.
    mutating func endOfflineSession() {
        guard provider.session != nil, device.account != nil, let end = graceEnd, end <= now.uptime else { return }
        let seconds = (now.uptime - provider.lastGood).components.seconds
        let reason =
            provider.needsPerson
            ? "the person has not signed in again" : provider.problem == nil ? disk.problem?.forLog(300) : nil
        signOutAutomatically(because: "offline for \(seconds) s" + (reason.map { ": \($0)" } ?? ""))
    }
}
