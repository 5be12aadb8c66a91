import DeviceConfiguration
import Identity
import SharedDevice

/// The requests that a client may make, according to the manifest of this program.
extension TokenRights {
    /// - Throws: `BrokerFailure` with `incorrectConfiguration` for a client that the manifest does not name.
    func check(_ client: String?) throws(BrokerFailure) {
        guard let client else { throw BrokerFailure(.apiContractViolation, "the request names no “clientId”") }
        guard microsoftClientIdentifiers.contains(client) else {
            throw BrokerFailure(
                .incorrectConfiguration,
                "no manifest names the client \(client.prefix(64)); add it to microsoftClientIDs of \(BrokerContract.application)"
            )
        }
    }

    /// Translates the scopes of a client to those of the provider.
    ///
    /// - Throws: `BrokerFailure` with `incorrectConfiguration` if the manifest does not allow a scope.
    func providerScopes(for requested: [String]) throws(BrokerFailure) -> [String] {
        // The broker keeps refresh tokens to itself.
        let wanted = Set(requested.flatMap(meaning)).subtracting(["offline_access"])
        let refused = refused(of: wanted)
        guard refused.isEmpty else {
            throw BrokerFailure(
                .incorrectConfiguration,
                "the manifest does not allow \(refused.joined(separator: " ").prefix(200)); add it to scopes of "
                    + "\(BrokerContract.application), or name a replacement in microsoftScopes"
            )
        }
        return wanted.sorted()
    }

    /// Checks that the token grants all requested scopes.
    ///
    /// - Throws: `BrokerFailure` with `incorrectConfiguration` that names the missing scopes.
    func check(granted: [String], for requested: [String]) throws(BrokerFailure) {
        let missing = AccessToken.scopes(Set(requested.flatMap(meaning)), notIn: Set(granted))
        guard missing.isEmpty else {
            throw BrokerFailure(
                .incorrectConfiguration,
                "the provider has not granted \(missing.sorted().joined(separator: " ").prefix(200))"
            )
        }
    }

    /// The manifest's replacement of a scope, under whichever of its names the client uses; otherwise the scope itself.
    private func meaning(of scope: String) -> [String] {
        if let meaning = microsoftScopes[scope] { return Array(meaning) }
        if scopes.contains(scope) { return [scope] }
        let name = AccessToken.inFull(scope)
        func names(_ scopes: some Sequence<String>) -> String? {
            scopes.sorted().first { AccessToken.inFull($0) == name }
        }
        if let other = names(microsoftScopes.keys) { return Array(microsoftScopes[other] ?? []) }
        return [names(scopes) ?? scope]
    }
}

extension BrokerFailure {
    /// Translates an error of the device's broker, or of the library, to the clients' statuses.
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
                .userNotAllowed, .deviceNotJoined:
                .incorrectConfiguration
            // Other apps have to clean up; this client has nothing to remove.
            case .brokerUnavailable, .cleanupPending, .tooManyAttempts: .transientError
            default: .unexpected
            }
        self.init(status, error.message)
    }
}
