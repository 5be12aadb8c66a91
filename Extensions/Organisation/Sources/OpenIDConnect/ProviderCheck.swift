import Basics
import Cryptography
package import HTTPClient
package import Identity

extension OpenIDConnectClient {
    /// Tests what a device needs of its provider, as far as that is possible without a person. The tests use an invalid
    /// code and invalid tokens, so that the provider's error responses tell how far a request got.
    ///
    /// - Parameter redirect: The address that a browser would come back to.
    package func check(redirect: String, scopes: [String]) async -> [ProviderCheckStep] {
        let first = await checkServer()
        var steps = [first]
        let provider: ProviderClient
        do throws(SignInError) {
            guard first.outcome != .fails else { throw .unreachable(issuer, "see above") }
            provider = try await self.provider()
            steps.append(ProviderCheckStep(.discovery, .works, "it describes itself as \(issuer)"))
        } catch {
            steps.append(ProviderCheckStep(.discovery, .fails, error.description))
            let rest = ProviderCheckStep.Name.ofEveryProvider.drop { $0 != .keys }
            return steps + rest.map { ProviderCheckStep($0, .unknown, "not tried: the provider is not known") }
        }
        do throws(SignInError) {
            try await fetchKeys()
            steps.append(ProviderCheckStep(.keys, .works, "\(provider.metadata.keysAddress)"))
        } catch {
            steps.append(ProviderCheckStep(.keys, .fails, error.description))
        }
        let check = ProviderCheck(provider: provider, redirect: redirect, scopes: scopes)
        for step in ProviderCheckStep.Name.ofEveryProvider.drop(while: { $0 != .redirect }) {
            switch check.plan(step) {
            case .found(let found): steps.append(found)
            case .ask(let request): steps.append(check.meaning(of: await send(request), step))
            }
        }
        return steps
    }

    /// Tests whether logout tokens can arrive, as far as that is possible without one.
    ///
    /// - Parameters:
    ///   - address: The address for logout tokens in the configuration.
    ///   - problem: The reason why this device does not listen there; `nil` if it does.
    package func checkLogouts(at address: String, problem: String?) async -> ProviderCheckStep {
        if let problem { return ProviderCheckStep(.backChannelLogout, .fails, problem) }
        let says: Bool?
        do throws(SignInError) {
            says = try await provider().metadata.tellsOfLogouts
        } catch {
            return ProviderCheckStep(.backChannelLogout, .unknown, "this device listens at \(address); see above")
        }
        let untried = "not tried: a logout, which needs a session; end one at the provider, and see it end here"
        return switch says {
        case true?:
            ProviderCheckStep(
                .backChannelLogout,
                .works,
                "this device listens at \(address), and the provider says that it reports logouts; \(untried)"
            )
        case false?:
            ProviderCheckStep(
                .backChannelLogout,
                .fails,
                "\(issuer) says that it does not report logouts; leave backChannelLogout out, and let the device ask"
            )
        case nil:
            ProviderCheckStep(
                .backChannelLogout,
                .unknown,
                "this device listens at \(address); the provider does not say whether it reports logouts; \(untried)"
            )
        }
    }

    private func checkServer() async -> ProviderCheckStep {
        guard issuer.address.isSecure else {
            return ProviderCheckStep(.tls, .unknown, "none is needed: the provider is on this machine")
        }
        guard let address = issuer.configurationAddress else {
            return ProviderCheckStep(
                .tls,
                .fails,
                "\(issuer) is an address to which no path can be added; correct oidcIssuer"
            )
        }
        switch await send(HTTPRequest(address)) {
        case .failure(let error) where ![.redirected, .cancelled].contains(error.reason):
            return ProviderCheckStep(.tls, .fails, error.description)
        case .failure, .success:
            return ProviderCheckStep(.tls, .works, "\(issuer.address.host) proves who it is")
        }
    }
}

/// The request of each step, and the meaning of its response. Pure: the caller sends the requests.
package struct ProviderCheck: Sendable {
    package enum Plan: Sendable {
        case ask(HTTPRequest)
        /// The result is known without a request.
        case found(ProviderCheckStep)
    }

    private let provider: ProviderClient
    private let redirect: String
    private let scopes: [String]

    package init(provider: ProviderClient, redirect: String, scopes: [String]) {
        self.provider = provider
        self.redirect = redirect
        self.scopes = scopes
    }

    private var metadata: ProviderMetadata { provider.metadata }
    private var issuer: Issuer { provider.issuer }

    /// - Parameter name: `redirect` or a later step.
    package func plan(_ name: ProviderCheckStep.Name) -> Plan {
        func absent(_ what: String) -> Plan { .found(ProviderCheckStep(name, .unknown, what)) }
        switch name {
        case .tls, .discovery, .keys, .backChannelLogout, .sharedSignals: return absent("not asked here")
        case .redirect:
            let flow = AuthorizationCodeFlow(provider, redirect: redirect, start: .now)
            guard metadata.authorizationEndpoint != nil,
                let address = (try? flow.address(scopes: scopes)).flatMap(HTTPAddress.init)
            else { return absent("it has no page to sign in at; people sign in with device codes") }
            return .ask(HTTPRequest(address))
        case .deviceCode:
            guard let endpoint = metadata.deviceAuthorizationEndpoint else {
                return absent("it names no device_authorization_endpoint; people sign in by browser")
            }
            let form = [("scope", scopes.joined(separator: " "))]
            return .ask(provider.request(endpoint, form, namesClient: true))
        case .client:
            let secrets = AuthorizationCodeFlow.Secrets()
            return .ask(
                provider.request(
                    metadata.tokenEndpoint,
                    [
                        ("grant_type", "authorization_code"), ("code", secrets.state), ("redirect_uri", redirect),
                        ("code_verifier", secrets.verifier),
                    ]
                )
            )
        case .refresh: return .ask(RefreshFlow(provider, token: Self.unknownToken).begin())
        case .revocation:
            return provider.revocation(of: Self.unknownToken, .refreshToken).map { .ask($0) }
                ?? absent("it revokes no tokens: after a sign-out they count until they end")
        case .endSession:
            guard let endpoint = metadata.endSessionEndpoint else {
                return absent("it has no end_session_endpoint: its own session ends by itself")
            }
            // A session's request would contain its ID token, too.
            let form = FormFields.encode([("client_id", provider.credentials.identifier)])
            return .ask(HTTPRequest(endpoint, .post(Array(form.utf8), contentType: FormFields.contentType)))
        }
    }

    /// A random token that no provider has issued.
    private static var unknownToken: Secret { Secret(AuthorizationCodeFlow.Secrets().state) }

    package func meaning(
        of result: Result<HTTPResponse, HTTPError>,
        _ name: ProviderCheckStep.Name
    ) -> ProviderCheckStep {
        if name == .redirect { return meaningOfPage(result) }
        if name == .endSession { return meaningOfEnd(result) }
        let response: HTTPResponse
        switch result {
        case .failure(let error): return ProviderCheckStep(name, .fails, error.description)
        case .success(let success): response = success
        }
        if name == .revocation {
            do throws(SignInError) {
                try provider.checkRevocation(.success(response))
                return ProviderCheckStep(name, .works, "it takes the request")
            } catch {
                return ProviderCheckStep(name, .fails, error.description)
            }
        }
        switch (name, EndpointAnswer(response)) {
        case (_, .error("invalid_client", _)), (.client, .error("unauthorized_client", _)):
            return ProviderCheckStep(name, .fails, "\(SignInError.unknownClient(issuer))")
        case (.deviceCode, .granted(let json)):
            do throws(SignInError) {
                _ = try DeviceGrant.code(json, issuer)
                return ProviderCheckStep(name, .works, "it issues device codes")
            } catch {
                return ProviderCheckStep(name, .fails, error.description)
            }
        case (.client, .error("invalid_grant", _)), (.client, .error("invalid_code", _)):
            return ProviderCheckStep(name, .works, "it knows this client, and refuses a code that was never issued")
        case (.refresh, .error("invalid_grant", _)), (.refresh, .empty(400)), (.refresh, .empty(401)):
            return ProviderCheckStep(name, .works, "it refuses a refresh token that was never issued")
        case (_, .error("unauthorized_client", _)), (_, .error("unsupported_grant_type", _)):
            return ProviderCheckStep(
                name,
                .fails,
                "\(issuer) does not allow this client to do that; allow the client the grant \(Self.grant(name)) there"
            )
        case (_, .error(let word, _)):
            return ProviderCheckStep(name, .fails, "\(issuer) refuses the request (\(word.printable(64)))")
        case (_, .granted), (_, .empty), (_, .unusable):
            return ProviderCheckStep(
                name,
                .fails,
                "\(issuer) responds with status \(response.status), which says nothing; see its own log"
            )
        }
    }

    private static func grant(_ name: ProviderCheckStep.Name) -> String {
        switch name {
        case .refresh: "refresh_token"
        case .deviceCode: "urn:ietf:params:oauth:grant-type:device_code"
        default: "authorization_code"
        }
    }

    /// For a request without a session, providers show a page, redirect, or refuse.
    private func meaningOfEnd(_ result: Result<HTTPResponse, HTTPError>) -> ProviderCheckStep {
        let address = metadata.endSessionEndpoint.map { "\($0)" } ?? "end_session_endpoint"
        let untried = "not tried: the end of a session, which needs one"
        switch result {
        case .failure(let error) where error.reason == .redirected:
            return ProviderCheckStep(.endSession, .works, "\(address) responds; \(untried)")
        case .failure(let error): return ProviderCheckStep(.endSession, .fails, error.description)
        case .success(let response) where (200..<300).contains(response.status):
            return ProviderCheckStep(.endSession, .works, "\(address) responds; \(untried)")
        case .success(let response) where response.status == 429 || response.status >= 500:
            return ProviderCheckStep(
                .endSession,
                .fails,
                "\(address) responds with status \(response.status); see its own log"
            )
        case .success(let response):
            return ProviderCheckStep(
                .endSession,
                .unknown,
                "\(address) refuses a request that names no session (status \(response.status)); \(untried)"
            )
        }
    }

    /// A provider that knows the redirect address shows its page or redirects to it. With an unknown address it must
    /// not redirect (RFC 6749, section 4.1.2.1).
    private func meaningOfPage(_ result: Result<HTTPResponse, HTTPError>) -> ProviderCheckStep {
        switch result {
        case .failure(let error) where error.reason == .redirected:
            return ProviderCheckStep(.redirect, .works, "it takes \(redirect), and leads on to its page")
        case .failure(let error): return ProviderCheckStep(.redirect, .fails, error.description)
        case .success(let response) where (200..<300).contains(response.status):
            return ProviderCheckStep(.redirect, .works, "it takes \(redirect), and shows a page")
        case .success(let response) where (400..<500).contains(response.status):
            let remedy = SignInError.redirectRefused(redirect, issuer)
            return ProviderCheckStep(
                .redirect,
                .fails,
                "it refuses the request (status \(response.status)); \(remedy), and name its port in oidcLoopbackPorts where "
                    + "the provider compares ports"
            )
        case .success(let response):
            return ProviderCheckStep(
                .redirect,
                .fails,
                "its page responds with status \(response.status); see its own log"
            )
        }
    }
}
