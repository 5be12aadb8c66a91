package import Identity
package import OpenIDConnect

/// What a security event means for this device. Pure.
package struct SignalMeaning: Sendable {
    private let issuer: Issuer
    /// By which name the provider means this device; `nil`: by none.
    private let device: String?

    package init(issuer: Issuer, device: String?) {
        self.issuer = issuer
        self.device = device
    }

    /// What the broker is told, in this order.
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
            // A token that says the same by two events says it once.
            if let next, !told.contains(next) { told.append(next) }
        }
        return told
    }

    /// A token of the provider's that cannot be taken may have been about anybody here.
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
        // Whose device it is, or how it is, is not known here.
        guard device != nil, let isCompliant = token.isCompliant else { return doubt }
        return ProviderEvent(isCompliant ? .compliant : .notCompliant, issuer: issuer.text, date: token.date)
    }
}
