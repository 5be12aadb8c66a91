import DeviceConfiguration
import Identity
import SharedDevice

/// What a client may ask for, by the manifest of this program.
struct ClientRights: Sendable {
    let rights: TokenRights

    /// - Throws: `BrokerFailure` with `incorrectConfiguration` for a client that the manifest does not name.
    func check(_ client: String?) throws(BrokerFailure) {
        guard let client else { throw BrokerFailure(.apiContractViolation, "the request names no “clientId”") }
        guard rights.microsoftClientIdentifiers.contains(client) else {
            throw BrokerFailure(
                .incorrectConfiguration,
                "no manifest names the client \(client.prefix(64)); add it to microsoftClientIDs of \(BrokerContract.application)"
            )
        }
    }

    /// What the provider is asked for in place of these.
    ///
    /// - Throws: `BrokerFailure` with `incorrectConfiguration` where the manifest does not allow it.
    func scopes(for requested: [String]) throws(BrokerFailure) -> [String] {
        // The broker keeps refresh tokens, and clients get none.
        let wanted = Set(requested.flatMap(meaning)).subtracting(["offline_access"])
        let refused = rights.refused(of: wanted)
        guard refused.isEmpty else {
            throw BrokerFailure(
                .incorrectConfiguration,
                "the manifest does not allow \(refused.joined(separator: " ").prefix(200)); add it to scopes of "
                    + "\(BrokerContract.application), or say in microsoftScopes what stands for it"
            )
        }
        return wanted.sorted()
    }

    /// Sees that the token permits all that was asked for.
    ///
    /// - Throws: `BrokerFailure` with `incorrectConfiguration`, naming what is missing.
    func check(granted: [String], for requested: [String]) throws(BrokerFailure) {
        let missing = AccessToken.scopes(Set(requested.flatMap(meaning)), notIn: Set(granted))
        guard missing.isEmpty else {
            throw BrokerFailure(
                .incorrectConfiguration,
                "the provider has not granted \(missing.sorted().joined(separator: " ").prefix(200))"
            )
        }
    }

    /// What stands for a scope in the manifest, by whichever of its names the client asks for it; otherwise itself.
    private func meaning(of scope: String) -> [String] {
        if let meaning = rights.microsoftScopes[scope] { return Array(meaning) }
        if rights.scopes.contains(scope) { return [scope] }
        let name = AccessToken.inFull(scope)
        func names(_ scopes: some Sequence<String>) -> String? {
            scopes.sorted().first { AccessToken.inFull($0) == name }
        }
        if let other = names(rights.microsoftScopes.keys) { return Array(rights.microsoftScopes[other] ?? []) }
        return [names(rights.scopes) ?? scope]
    }
}

extension BrokerFailure {
    /// What the device's broker, or the library, says of a request, as clients know it.
    init(_ error: SharedDeviceError) {
        let status: BrokerContract.Status =
            switch error.code {
            case .noCurrentAccount: .interactionRequired
            case .currentAccountMismatch, .accountAlreadySignedIn: .accountSwitch
            case .cleanupRequired: .userDataRemovalRequired
            case .interactionRequired: .accountUnusable
            case .providerUnavailable: .noNetwork
            case .userCanceled: .userCanceled
            case .loginExpired: .applicationCanceled
            case .appNotEligible, .providerMisconfigured, .scopesDeclined, .notSharedDevice, .tenantMismatch,
                .deviceNotJoined:
                .incorrectConfiguration
            // Other apps clean up: this client has nothing to remove.
            case .brokerUnavailable, .cleanupPending, .tooManyAttempts: .transientError
            default: .unexpected
            }
        self.init(status, error.message)
    }
}
