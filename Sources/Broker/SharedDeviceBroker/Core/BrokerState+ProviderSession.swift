import Basics
import DeviceConfiguration
import FoundationEssentials
package import Identity
import Logging
import SharedDevice

/// The provider's session that belongs to the device's session: how it begins and ends, what is stored of it, and how
/// long it lasts without confirmation by the provider.
extension BrokerState {
    // MARK: Beginning

    /// Opens the session of a person whom the provider has signed in.
    ///
    /// - Parameter began: When that sign-in began.
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

    /// Clears the results of earlier requests: they do not apply to the next sign-in.
    private mutating func forgetQuestions() {
        (provider.mayBeUsed, provider.problem, provider.unanswered) = (false, nil, nil)
        (provider.demandedAt, provider.pausedUntil, provider.failures) = (nil, nil, 0)
    }

    /// Continues a session that an earlier run of the broker has opened.
    mutating func resumeProviderSession(_ session: ProviderSession) {
        provider.session = session
        provider.mayBeUsed = !session.isSettled
        if !session.needsPerson { provider.demandedAt = now.uptime }
        // The clock may have been set back since. A check in the future counts as one now.
        provider.isGood(since: now.uptime - .seconds(max(0, now.wall.timeIntervalSince(session.checkedAt))))
        provider.nextCheck = now.uptime
    }

    /// Replaces the session after the same person has authenticated again.
    ///
    /// Revokes the earlier tokens, unless they belong to the same session at the provider: those end with that session,
    /// and revoking them could end it.
    mutating func replaceProviderSession(_ signIn: ProviderSignIn, since began: Duration) {
        if let old = provider.session?.record, old.session == nil || old.session != signIn.record.session {
            tellLater(old, keepsSession: true, isRenewed: isRenewed)
        }
        openProviderSession(signIn, since: began)
        keepProviderSession(within: .zero)
    }

    /// Whether a renewal of the present record is in flight.
    private var isRenewed: Bool { provider.renewal?.generation == provider.generation }

    // MARK: Storage

    package var providerRecord: ProviderRecord? { provider.session?.record }

    /// The row to store: for the session that is being committed, or else for the open one.
    var providerRow: ProviderSession? {
        guard let pending else { return provider.session }
        guard let asked = pending.asked, let signIn = asked.provided, let settings = policy.organisation else {
            return nil
        }
        return ProviderSession(settings, record: signIn.record, since: date(of: asked.beganAt), at: now)
    }

    mutating func keepProviderSession(within delay: Duration) {
        unsaved.insert(.provider)
        let change = needsDisk(within: delay)
        if delay == .zero { provider.change = change }
    }

    // MARK: End

    /// Closes the session on this device at once. The provider is told afterwards, and the session stays closed even if
    /// the provider cannot be told.
    mutating func closeProviderSession() {
        guard let session = provider.session else { return }
        let isRenewed = isRenewed
        (provider.session, provider.soon, provider.identity) = (nil, nil, nil)
        provider.generation += 1
        forgetQuestions()
        unsaved.insert(.provider)
        unsaved.insert(.erasure)
        if let record = session.record { tellLater(record, isRenewed: isRenewed) }
        for request in provider.queue {
            guard let asked = asked.removeValue(forKey: request.number),
                case .token(_, _, let identifier) = asked.purpose
            else { continue }
            refuse(asked.request, sessionIsOver(identifier))
        }
        provider.queue = []
    }

    /// Handles the end of the session at the provider. The managed configuration decides between a sign-out and a new
    /// authentication.
    mutating func endByProvider(_ cause: String) {
        guard provider.session != nil, let next = try? device.signingOut(nil) else { return }
        if policy.organisation?.onProviderSessionEnd == .reauthenticate { return needPerson() }
        enter(next, cause: cause)
        effects.append(.note(.notice, "signed out by the provider", ["reason": cause, "epoch": "\(device.epoch)"]))
    }

    /// Withholds tokens until the person has authenticated again. A repeated demand by the provider does not extend
    /// their time.
    mutating func needPerson() {
        guard !provider.needsPerson else { return }
        provider.demandedAt = now.uptime
        provider.session?.needsPerson = true
        keepProviderSession(within: .zero)
        tokens.drop()
        unsaved.insert(.erasure)
        refuseTokens(personNeeded)
        effects.append(.note(.notice, "the provider wants the person to sign in again", ["epoch": "\(device.epoch)"]))
        touch()
    }

    var personNeeded: Refusal { .signInAgain(provider.session?.issuer ?? "the organisation") }

    /// Checks the session against a new configuration. Signs out if the session belongs to another provider or client.
    mutating func checkProviderSession() {
        guard policy.isConfigured, device.account != nil, pending == nil else { return }
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

    // MARK: Without confirmation

    /// When the session ends for lack of confirmation by the provider. It is `nil` without a configured grace, and
    /// while nothing is wrong: no check is overdue, the last check did not fail, and no person is needed.
    ///
    /// The grace counts from the last confirmation, whatever prevents the next one: the network, the provider, the
    /// configuration, a failing disk (without it no request is sent), or a person who has to authenticate again. There
    /// is a minimum of time, even if the grace is over:
    ///
    /// - A person has the lifetime of a prompt.
    /// - A request has the time for its response.
    /// - After a sleep the network has as much time to return, but only once after each confirmation. Repeated sleeps
    ///   do not extend the session.
    var graceEnd: Duration? {
        guard let grace = policy.organisation?.offlineGrace.duration else { return nil }
        let word = provider.lastGood + grace
        if provider.needsPerson { return max(word, provider.demandedAt.map { $0 + Self.promptLifetime } ?? word) }
        let end = max(word, provider.wokeAt.map { $0 + Self.answerPatience } ?? word)
        if provider.problem != nil { return end }
        return provider.unanswered.map { max(end, $0 + Self.answerPatience) }
    }

    /// The shortest suspension that counts as sleep. The clocks are read within a tenth of that.
    static let leastSleep = Duration.seconds(1)

    /// Notes a sleep after which the grace is over or nearly over, so that a check still has time for its response.
    mutating func wakeWithinGrace() {
        guard provider.wokeAt == nil, let grace = policy.organisation?.offlineGrace.duration,
            provider.lastGood + grace < now.uptime + Self.answerPatience
        else { return }
        provider.wokeAt = now.uptime
    }

    mutating func endOfflineSession() {
        guard provider.session != nil, device.account != nil, let end = graceEnd, end <= now.uptime else { return }
        let seconds = (now.uptime - provider.lastGood).components.seconds
        let reason =
            provider.needsPerson
            ? "the person has not signed in again" : provider.problem == nil ? disk.problem?.printable(300) : nil
        signOutAutomatically(because: "offline for \(seconds) s" + (reason.map { ": \($0)" } ?? ""))
    }
}
