import DeviceConfiguration
package import FoundationEssentials
import Identity
import Logging
import SharedDevice

/// What the organisation's provider said last of this device.
package struct ComplianceWord: Sendable, Equatable {
    package let issuer: String
    /// Whether the device does what the organisation asks of its devices.
    package let isCompliant: Bool
    /// When it was so, by the provider's clock.
    package let date: Date
}

/// What the service that speaks to the provider has heard: ends of sessions, from whichever way they come, and reasons to ask the provider at once.
extension BrokerState {
    /// The service that speaks to the provider.
    static let providerUnit = "shared-device-identity.service"
    /// The pause between two questions to the provider that are asked before their time. Whoever brings reasons without end does not make the broker ask
    /// more often.
    static let soonPause = Duration.seconds(30)
    /// How far the provider's clock may be behind this device's, in seconds.
    static let clockSkew: TimeInterval = 60

    /// Does what follows from what was heard.
    ///
    /// - Returns: whether something of it has to be on the disk before the service may forget it.
    mutating func heed(_ events: [ProviderEvent]) -> Bool {
        var isKept = false
        for event in events {
            switch event.kind {
            case .networkUp:
                guard isIssuer(event.issuer) else { continue }
                // Who wanted to be left alone may not have been the provider.
                (provider.pausedUntil, provider.failures) = (nil, 0)
                askSoon()
            case .doubt:
                keepForSignIns(event)
                let subject = provider.session?.record?.person.subject
                if isIssuer(event.issuer), event.subject == nil || event.subject == subject { askSoon() }
            case .compliant, .notCompliant:
                if isIssuer(event.issuer) { isKept = heedCompliance(event) || isKept }
            case .ended, .reauthenticate: isKept = heedEnd(event) || isKept
            }
        }
        return isKept
    }

    private func isIssuer(_ name: String) -> Bool {
        policy.organisation?.issuer.text.utf8.elementsEqual(name.utf8) == true
    }

    /// - Returns: whether the disk has to have it. That of a sign-out is noted apart, before anybody is answered.
    private mutating func heedEnd(_ event: ProviderEvent) -> Bool {
        keepForSignIns(event)
        if event.kind == .ended, let attempt = pending?.asked, let provided = attempt.provided,
            event.concerns(provided.record), isSince(event, attempt.beganAt)
        {
            // Ended while the disk is still to have it.
            dropPendingSignIn(because: .endedMeanwhile(event.issuer))
            return false
        }
        return heedEndOfSession(event)
    }

    private mutating func heedEndOfSession(_ event: ProviderEvent) -> Bool {
        guard let session = provider.session, let record = session.record, event.concerns(record) else { return false }
        // It was told late, or told again: the person has begun another session since, or has proved since who they are. The provider knows
        // whether they may stay.
        let since = event.kind == .ended ? session.beganAt : session.provedAt
        if let date = event.date, date < since.addingTimeInterval(-Self.clockSkew) {
            askSoon()
            return false
        }
        switch event.kind {
        case .reauthenticate: needPerson()
        default: endByProvider("the provider has ended its session, and told so")
        }
        return provider.needsPerson
    }

    // MARK: While somebody signs in

    private mutating func keepForSignIns(_ event: ProviderEvent) {
        guard isIssuer(event.issuer), let began = firstSignIn else { return }
        provider.heard.add(event, at: now.uptime, since: began)
    }

    /// Since when the first sign-in with the provider is under way; `nil` where none is.
    private var firstSignIn: Duration? {
        let prompts = prompts.values.filter { $0.method != .password }.map(\.beganAt)
        let written = pending?.asked.flatMap { $0.provided == nil ? nil : $0.beganAt }
        return (prompts + [written].compactMap { $0 }).min()
    }

    /// When that was, by the clock as it is now: it may have been set since.
    func date(of moment: Duration) -> Date { now.wall.addingTimeInterval((moment - now.uptime) / .seconds(1)) }

    /// Whether it happened since then, as far as the clocks of both agree.
    private func isSince(_ event: ProviderEvent, _ began: Duration) -> Bool {
        event.date.map { $0 >= date(of: began).addingTimeInterval(-Self.clockSkew) } ?? true
    }

    /// The person of a sign-in is known: nobody is signed in whose session the provider has ended since the sign-in began.
    func checkLasts(_ record: ProviderRecord, since began: Duration) throws(Refusal) {
        let heard = provider.heard
        guard heard.isComplete(since: began) else { throw .toldTooMuch(record.person.issuer) }
        guard !heard.about(record, since: began).contains(where: { $0.kind == .ended && isSince($0, began) }) else {
            throw .endedMeanwhile(record.person.issuer)
        }
    }

    /// The session of a sign-in is open: what was heard of it meanwhile, and has not ended it, is heeded now.
    mutating func heedHeard(since began: Duration) {
        guard let record = provider.session?.record else { return }
        for event in provider.heard.about(record, since: began) {
            if event.kind == .doubt { askSoon() } else { _ = heedEndOfSession(event) }
        }
    }

    /// What was heard concerns no later sign-in.
    mutating func forgetHeard() { if !provider.heard.isEmpty, firstSignIn == nil { provider.heard = HeardEvents() } }

    // MARK: Asking before the time

    /// There is a reason to ask the provider, and to tell it what it was not told.
    mutating func askSoon() {
        // With nobody signed in no question uses up the time that is set: it is not put off further with each reason.
        let earliest = max(now.uptime, provider.lastSoon.map { $0 + Self.soonPause } ?? .zero)
        let time = min(earliest, now.uptime + Self.soonPause)
        guard provider.soon == nil else { return }
        provider.lastSoon = time
        // A renewal that is under way may be from before.
        if provider.session != nil { provider.soon = time }
        provider.outbox.hurry(to: time)
    }

    /// The machine has slept. The network is often back some seconds later only, and may say so at once: this question keeps no other one waiting.
    mutating func askAfterSleep() {
        let last = provider.lastSoon
        askSoon()
        provider.lastSoon = last
    }

    // MARK: The device

    /// Why nobody signs in; `nil` where the device is in order, or no event can tell.
    var complianceProblem: Refusal? {
        guard let compliance, !compliance.isCompliant, policy.organisation?.sharedSignals?.device != nil,
            isIssuer(compliance.issuer)
        else { return nil }
        return .notCompliant(compliance.issuer)
    }

    private mutating func heedCompliance(_ event: ProviderEvent) -> Bool {
        let date = event.date ?? now.wall
        // Told late: something later is known.
        if let compliance, isIssuer(compliance.issuer), date < compliance.date { return false }
        compliance = ComplianceWord(issuer: event.issuer, isCompliant: event.kind == .compliant, date: date)
        isComplianceDirty = true
        needsDisk(within: .zero)
        touch()
        guard let problem = complianceProblem else { return true }
        effects.append(.note(.error, "nobody signs in", ["reason": problem.description]))
        dropPendingSignIn(because: problem)
        endPrompts(because: problem)
        signOutAutomatically(because: "the provider says that this device does not comply")
        return true
    }
}
