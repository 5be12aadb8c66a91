import DeviceConfiguration
package import FoundationEssentials
package import Identity

/// The part of the provider's session that the broker stores for the open session of the device.
package struct ProviderSession: Sendable, Equatable {
    /// The provider and the client of the session. Settings with another provider or client end the session.
    package let issuer: String
    package let client: String
    /// The provider's record; `nil` if it was only in memory before a restart. The person then has to sign in again.
    package internal(set) var record: ProviderRecord?
    /// When the provider last confirmed that the person is signed in, by the wall clock.
    package internal(set) var checkedAt: Date
    /// When the person last authenticated, and when that sign-in began, by the wall clock.
    package let provedAt: Date
    package let beganAt: Date
    /// Whether the provider requires the person before it issues a token. A restart of the broker does not change this.
    package internal(set) var needsPerson = false
    /// Whether every renewal with the record's token has a response; `false` is committed before a renewal is sent. If
    /// a start finds `true`, a refusal is the provider's decision, and not the effect of a token that was used twice.
    package var isSettled = false

    package init(
        issuer: String,
        client: String,
        record: ProviderRecord? = nil,
        checkedAt: Date,
        provedAt: Date,
        beganAt: Date,
        needsPerson: Bool = false,
        isSettled: Bool = false
    ) {
        (self.issuer, self.client, self.record) = (issuer, client, record)
        (self.checkedAt, self.provedAt, self.beganAt) = (checkedAt, provedAt, beganAt)
        (self.needsPerson, self.isSettled) = (needsPerson, isSettled)
    }
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

/// The last report of the organisation's provider on the compliance of this device.
package struct ComplianceWord: Sendable, Equatable {
    package let issuer: String
    /// Whether the device meets the organisation's requirements.
    package let isCompliant: Bool
    /// When this was so, by the provider's clock.
    package let date: Date

    package init(issuer: String, isCompliant: Bool, date: Date) {
        (self.issuer, self.isCompliant, self.date) = (issuer, isCompliant, date)
    }
}
