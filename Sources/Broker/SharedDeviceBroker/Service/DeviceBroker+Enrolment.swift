import Foundation
import SharedDevice

/// The device's membership in an organisation.
extension DeviceBroker {
    /// The open session; `nil` where nobody is signed in.
    var openSession: (epoch: UInt64, startedAt: Date)? {
        guard state.account != nil, let session = ledger.sessions[state.epoch] else { return nil }
        return (state.epoch, session.startedAt)
    }

    /// Puts other rules in force. Whoever they do not allow is signed out.
    ///
    /// - Throws: ``StoreError``: the account could not be signed out; the rules are in force all the same.
    package func use(requiresJoin: Bool, tenantIdentifier: String?) throws {
        configuredRules = DeviceRules(requiresJoin: requiresJoin, tenantIdentifier: tenantIdentifier)
        try apply(.rulesChanged, cause: "the managed configuration")
    }

    /// Joins the device to the organisation of the administrator who signs this request. Twice is harmless.
    ///
    /// - Parameter organization: its name, for display.
    /// - Returns: the organisation's tenant.
    /// - Throws: ``IdentityError``; ``DeviceRefusal`` where the user is no administrator, or the device is meant for another organisation or
    ///   joined to one; ``StoreError``. Nothing has changed then.
    package func join(_ request: SignInRequest, organization: String?) async throws -> String {
        let account = try await authenticateAdministrator(request)
        let tenant = account.tenantIdentifier.lowercased()
        if let enrolment {
            guard enrolment.tenantIdentifier == tenant else { throw DeviceRefusal.joinedElsewhere }
            return tenant
        }
        if let meant = configuredRules.tenantIdentifier, meant.lowercased() != tenant {
            throw DeviceRefusal.tenantMismatch
        }
        let enrolment = Membership(
            organization: organization,
            tenantIdentifier: tenant,
            joinedAt: surroundings.now(),
            subject: try store.subject(of: account)
        )
        try apply(.rulesChanged, enrolment: .join(enrolment), cause: "the device's joining")
        return tenant
    }

    /// Leaves the organisation, by the word of one of its administrators. Whoever is signed in is signed out.
    ///
    /// - Throws: ``IdentityError``; ``DeviceRefusal`` where the user is no administrator of that organisation, or the device is not joined;
    ///   ``StoreError``. Nothing has changed then.
    package func leave(_ request: SignInRequest) async throws {
        let account = try await authenticateAdministrator(request)
        guard let enrolment else { throw DeviceRefusal.notJoined }
        guard enrolment.tenantIdentifier == account.tenantIdentifier.lowercased() else {
            throw DeviceRefusal.tenantMismatch
        }
        let subject = try store.subject(of: account)
        try apply(.left, enrolment: .leave(subject: subject), cause: "the device's leaving")
    }

    private func authenticateAdministrator(_ request: SignInRequest) async throws -> Account {
        let identity = try await provider.authenticate(request)
        // It was for this request only.
        Task { [provider] in try? await provider.endSession(for: identity) }
        guard identity.isAdministrator else { throw DeviceRefusal.notAdministrator }
        return identity.account
    }
}
