import DBusTransport
import DeviceConfiguration
import HTTPClient
import Identity
import Logging
import OpenIDConnect
import OrganisationIdentity
import StrictJSON
import Synchronization

/// The provider that the managed configuration names, as the file is now.
final class CurrentProvider: Sendable {
    private struct State {
        var settings: OrganisationSettings?
        var provider: Result<OpenIDConnectProvider, IdentityError> = .failure(CurrentProvider.notConfigured)
        var client: OpenIDConnectClient?
    }

    private let secret: Secret?
    private let log: Logger
    private let state = Locked(State())

    /// - Parameter secret: the client's; `nil` for a public client.
    init(secret: Secret?, log: Logger) {
        self.secret = secret
        self.log = log
    }

    private static let notConfigured = IdentityError(
        .providerMisconfigured,
        "the managed configuration names no provider; write \"identity\": \"oidc\" with oidcIssuer and oidcClientID"
    )

    /// Who answers now, or why nobody does.
    var provider: Result<any OrganisationProvider, IdentityError> {
        state.withLock { state in state.provider.map { $0 as any OrganisationProvider } }
    }

    /// The same as a client, for what is not asked by the broker; `nil` where nobody answers.
    var client: OpenIDConnectClient? { state.withLock { $0.client } }

    /// What is configured; `nil` where no provider is.
    var settings: OrganisationSettings? { state.withLock { $0.settings } }

    /// Ends all sign-ins that are under way.
    func cancelAll() { try? state.withLock { $0.provider }.get().cancelAll() }

    /// The network is back: what has failed is asked for again as soon as somebody needs it.
    func forgetFailures() { client?.forgetFailures() }

    /// The file has changed, or was read for the first time. A provider that stays the same goes on, with its sign-ins.
    func use(_ update: ManagedConfigurationUpdate) {
        if let problem = update.problem { log.error("managed configuration", metadata: ["problem": "\(problem)"]) }
        let settings: OrganisationSettings?
        switch update.inForce {
        case .present(let configuration): settings = configuration.organisation
        case .missing: settings = nil
        // What was valid last stays in force.
        case nil: return
        }
        let before = self.settings
        guard settings != before else { return }
        if let settings, settings.signInPart == before?.signInPart {
            // The client stays: it has the sign-ins that are under way, the provider's keys, and the names of the logout tokens that have counted.
            state.withLock { $0.settings = settings }
            return log.info("the configuration has changed, and the provider is the same")
        }
        cancelAll()
        guard let settings else {
            state.withLock { $0 = State() }
            return log.warning("no provider is configured")
        }
        let made = make(settings)
        state.withLock { state in
            state.settings = settings
            state.client = made?.client
            state.provider = made.map { .success($0.provider) } ?? .failure(Self.notConfigured)
        }
        log.info("the provider is configured", metadata: ["issuer": "\(settings.issuer.text)"])
    }

    private func make(
        _ settings: OrganisationSettings
    ) -> (client: OpenIDConnectClient, provider: OpenIDConnectProvider)? {
        guard let issuer = Issuer(settings.issuer.text) else { return nil }
        let client = OpenIDConnectClient(
            issuer: issuer,
            credentials: ClientCredentials(identifier: settings.clientIdentifier, secret: secret),
            http: HTTPClient(trustAnchors: settings.trustAnchors),
            overrides: settings.endpoints.addresses.compactMapValues(HTTPAddress.init)
        )
        let provider = OpenIDConnectProvider(
            client,
            settings: OpenIDConnectProvider.Settings(
                scopes: settings.scopes,
                asksForOfflineAccess: settings.offlineAccess == .always,
                mapping: AccountMapping(tenantClaim: settings.tenantClaim)
            )
        )
        return (client, provider)
    }
}
