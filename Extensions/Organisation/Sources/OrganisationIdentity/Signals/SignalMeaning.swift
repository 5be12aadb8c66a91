package import Identity
package import OpenIDConnect

/// Translates a security event into events for this device's broker. Pure.
package struct SignalMeaning: Sendable {
    private let issuer: Issuer
    /// The provider's identifier of this device; `nil` if it has none.
    private let device: String?

    package init(issuer: Issuer, device: String?) {
        self.issuer = issuer
        self.device = device
    }

    /// The events to report to the broker, in this order.
    package func events(of token: SecurityEventToken) -> [ProviderEvent] {
        var told: [ProviderEvent] = []
        for event in SecurityEventToken.Event.allCases where token.events.contains(event) {
            let next: ProviderEvent? =
                switch event {
                case .sessionRevoked, .sessionsRevoked, .accountDisabled, .accountPurged: person(.ended, token)
                case .credentialChange: person(.reauthenticate, token)
                case .deviceComplianceChange: compliance(token)
                case .verification: nil
                }
            // Two events with the same meaning are reported once.
            if let next, !told.contains(next) { told.append(next) }
        }
        return told
    }

    /// The event for a signed token that is rejected: it may have concerned any person who is signed in here.
    package var doubt: ProviderEvent { ProviderEvent(.doubt, issuer: issuer.text) }

    private func person(_ kind: ProviderEvent.Kind, _ token: SecurityEventToken) -> ProviderEvent? {
        let isElsewhere = token.device.map { $0 != device } ?? false
        if isElsewhere, device != nil { return nil }
        let isClear = !token.isNarrower && !isElsewhere && (token.subject ?? token.session) != nil
        return ProviderEvent(
            isClear ? kind : .doubt,
            issuer: issuer.text,
            subject: token.subject,
            session: isClear ? token.session : nil,
            date: token.date
        )
    }

    private func compliance(_ token: SecurityEventToken) -> ProviderEvent? {
        if let device, token.device != device { return nil }
        // Either the event may concern another device, or it does not state the device's compliance.
        guard device != nil, let isCompliant = token.isCompliant else { return doubt }
        return ProviderEvent(isCompliant ? .compliant : .notCompliant, issuer: issuer.text, date: token.date)
    }
}
