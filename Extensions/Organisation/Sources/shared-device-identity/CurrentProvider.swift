import Basics
import DBus
import DeviceConfiguration
import HTTPClient
import Identity
import Logging
import OpenIDConnect
import OrganisationIdentity
import Synchronization

/// The provider in the current managed configuration.
final class CurrentProvider: Sendable {
    private struct State {
        var settings: OrganisationSettings?
        var provider: OpenIDConnectProvider?
    }

    private let secret: Secret?
    private let log: Logger
    private let state = Locked(State())

    /// - Parameter secret: The client's secret; `nil` for a public client.
    init(secret: Secret?, log: Logger) {
        self.secret = secret
        self.log = log
    }

    private static let notConfigured = IdentityError(
        .providerMisconfigured,
        "the managed configuration names no provider; write \"identity\": \"oidc\" with oidcIssuer and oidcClientID"
    )

    /// The provider, or why there is none.
    var provider: Result<any OrganisationProvider, IdentityError> {
        state.withLock { $0.provider }.map { .success($0) } ?? .failure(Self.notConfigured)
    }

    /// The provider's client, for requests that do not come from the broker; `nil` without a provider.
    var client: OpenIDConnectClient? { state.withLock { $0.provider }?.client }

    var settings: OrganisationSettings? { state.withLock { $0.settings } }

    func cancelAll() { state.withLock { $0.provider }?.cancelAll() }

    /// The network is back: failed requests are repeated at the next need, without waiting.
    func forgetFailures() { client?.forgetFailures() }

    /// Applies the first or a changed file. If the provider stays the same, it continues, with its sign-ins.
    func use(_ update: ManagedConfigurationUpdate) {
        if let problem = update.problem { log.error("managed configuration", metadata: ["problem": "\(problem)"]) }
        let settings: OrganisationSettings?
        switch update.inForce {
        case .present(let configuration): settings = configuration.organisation
        case .missing: settings = nil
        // The last valid settings stay in force.
        case nil: return
        }
        let before = self.settings
        guard settings != before else { return }
        if let settings, settings.signInPart == before?.signInPart {
            // Keep the client: it holds the sign-ins in flight, the provider's keys, and the identifiers of used logout
            // tokens.
            state.withLock { $0.settings = settings }
            return log.info("the configuration has changed, and the provider is the same")
        }
        cancelAll()
        guard let settings else {
            state.withLock { $0 = State() }
            return log.warning("no provider is configured")
        }
        let provider = make(settings)
        state.withLock { $0 = State(settings: settings, provider: provider) }
        log.info("the provider is configured", metadata: ["issuer": "\(settings.issuer.text)"])
    }

    private func make(_ settings: OrganisationSettings) -> OpenIDConnectProvider? {
        guard let issuer = Issuer(settings.issuer.text) else { return nil }
        let client = OpenIDConnectClient(
            issuer: issuer,
            credentials: ClientCredentials(identifier: settings.clientIdentifier, secret: secret),
            http: HTTPClient(trustAnchors: settings.trustAnchors),
            overrides: settings.endpoints.addresses.compactMapValues(HTTPAddress.init)
        )
        return OpenIDConnectProvider(
            client,
            settings: OpenIDConnectProvider.Settings(
                scopes: settings.scopes,
                asksForOfflineAccess: settings.offlineAccess == .always,
                tenantClaim: settings.tenantClaim
            )
        )
    }
}
