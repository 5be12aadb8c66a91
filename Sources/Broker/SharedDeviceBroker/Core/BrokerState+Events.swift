import DeviceConfiguration
package import FoundationEssentials
import Identity
import Logging
@_spi(Extensions) import SharedDevice

/// The last report of the organisation's provider on the compliance of this device.
package struct ComplianceWord: Sendable, Equatable {
    package let issuer: String
    /// Whether the device meets the organisation's requirements.
    package let isCompliant: Bool
    /// When this was so, by the provider's clock.
    package let date: Date
}

/// Events that the identity service has received from the provider: ends of sessions, compliance, and reasons to ask
/// the provider at once.
extension BrokerState {
    static let providerUnit = "shared-device-identity.service"
    /// The shortest pause between two early requests to the provider. Even an endless stream of reasons does not make
    /// the broker ask more often.
    static let soonPause = Duration.seconds(30)
    /// How far the provider's clock may be behind this device's clock, in seconds.
    static let clockSkew: TimeInterval = 60

    /// Acts on the events.
    ///
    /// - Returns: Whether a change has to be committed before the service may forget the events.
    mutating func heed(_ events: [ProviderEvent]) -> Bool {
        var isKept = false
        for event in events {
            switch event.kind {
            case .networkUp:
                guard isIssuer(event.issuer) else { continue }
                // The Retry-After may have come from a captive portal, not from the provider.
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

    /// - Returns: Whether the change has to be committed first. A sign-out does not: ``Effect/noteState(_:)`` stores it
    ///   before any response is sent.
    private mutating func heedEnd(_ event: ProviderEvent) -> Bool {
        keepForSignIns(event)
        if event.kind == .ended, let attempt = pending?.asked, let provided = attempt.provided,
            event.concerns(provided.record), isSince(event, attempt.beganAt)
        {
            // The session ended while its sign-in was still being committed.
            dropPendingSignIn(because: .endedMeanwhile(event.issuer))
            return false
        }
        return heedEndOfSession(event)
    }

    private mutating func heedEndOfSession(_ event: ProviderEvent) -> Bool {
        guard let session = provider.session, let record = session.record, event.concerns(record) else { return false }
        // The event is late or a repetition: the person has begun another session since, or has authenticated again.
        // The provider decides whether the session may continue.
        let since = event.kind == .ended ? session.beganAt : session.provedAt
        if let date = event.date, date < since.addingTimeInterval(-Self.clockSkew) {
            askSoon()
            return false
        }
        switch event.kind {
        case .reauthenticate: needPerson()
        default: endByProvider("the provider has ended its session, and reported that")
        }
        return provider.needsPerson
    }

    // MARK: During a sign-in

    private mutating func keepForSignIns(_ event: ProviderEvent) {
        guard isIssuer(event.issuer), let began = firstSignIn else { return }
        provider.heard.add(event, at: now.uptime, since: began)
    }

    /// When the oldest sign-in in progress with the provider began; `nil` if there is none.
    private var firstSignIn: Duration? {
        let prompts = prompts.values.filter { $0.method != .password }.map(\.beganAt)
        let written = pending?.asked.flatMap { $0.provided == nil ? nil : $0.beganAt }
        return (prompts + [written].compactMap { $0 }).min()
    }

    /// The wall-clock time of a past moment, by the present setting of the clock.
    func date(of moment: Duration) -> Date { now.wall.addingTimeInterval((moment - now.uptime) / .seconds(1)) }

    /// Whether the event happened after the sign-in began, within the tolerance for the provider's clock. An event
    /// without a date counts.
    private func isSince(_ event: ProviderEvent, _ began: Duration) -> Bool {
        event.date.map { $0 >= date(of: began).addingTimeInterval(-Self.clockSkew) } ?? true
    }

    /// Checks a sign-in whose person is now known: it is refused if the provider has ended its session since the
    /// sign-in began, or if events were lost.
    func checkLasts(_ record: ProviderRecord, since began: Duration) throws(Refusal) {
        let heard = provider.heard
        guard heard.isComplete(since: began) else { throw .toldTooMuch(record.person.issuer) }
        guard !heard.about(record, since: began).contains(where: { $0.kind == .ended && isSince($0, began) }) else {
            throw .endedMeanwhile(record.person.issuer)
        }
    }

    /// Acts on the events that were buffered for a sign-in whose session is now open. Only events that did not end the
    /// sign-in are left.
    mutating func heedHeard(since began: Duration) {
        guard let record = provider.session?.record else { return }
        for event in provider.heard.about(record, since: began) {
            if event.kind == .doubt { askSoon() } else { _ = heedEndOfSession(event) }
        }
    }

    /// Clears the buffer when no sign-in is in progress: the events do not apply to later sign-ins.
    mutating func forgetHeard() { if !provider.heard.isEmpty, firstSignIn == nil { provider.heard = HeardEvents() } }

    // MARK: Early checks

    /// Schedules an early check with the provider, and an early attempt to send the pending ends of sessions.
    mutating func askSoon() {
        // Without a session `soon` stays `nil`, so each reason computes a new time. The upper bound keeps it from
        // moving further and further away.
        let earliest = max(now.uptime, provider.lastSoon.map { $0 + Self.soonPause } ?? .zero)
        let time = min(earliest, now.uptime + Self.soonPause)
        guard provider.soon == nil else { return }
        provider.lastSoon = time
        // Scheduled even if a renewal is in flight: it may have begun before the reason arose.
        if provider.session != nil { provider.soon = time }
        provider.outbox.hurry(to: time)
    }

    /// Schedules an early check after a sleep. It does not count for the pause between early checks, because the
    /// network often returns some seconds later and then needs a check at once.
    mutating func askAfterSleep() {
        let last = provider.lastSoon
        askSoon()
        provider.lastSoon = last
    }

    // MARK: Compliance

    /// Why compliance prevents sign-ins; `nil` if the device complies, or if no events about the device are configured.
    var complianceProblem: Refusal? {
        guard let compliance, !compliance.isCompliant, policy.organisation?.sharedSignals?.device != nil,
            isIssuer(compliance.issuer)
        else { return nil }
        return .notCompliant(compliance.issuer)
    }

    private mutating func heedCompliance(_ event: ProviderEvent) -> Bool {
        let date = event.date ?? now.wall
        // A late event: something newer is known.
        if let compliance, isIssuer(compliance.issuer), date < compliance.date { return false }
        compliance = ComplianceWord(issuer: event.issuer, isCompliant: event.kind == .compliant, date: date)
        unsaved.insert(.compliance)
        needsDisk(within: .zero)
        touch()
        guard let problem = complianceProblem else { return true }
        effects.append(.note(.error, "users cannot sign in", ["reason": problem.description]))
        dropPendingSignIn(because: problem)
        endPrompts(because: problem)
        signOutAutomatically(because: "the provider says that this device does not comply")
        return true
    }
}
