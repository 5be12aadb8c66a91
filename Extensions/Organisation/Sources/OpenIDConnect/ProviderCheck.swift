import Basics
import Cryptography
import HTTPClient
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
        do throws(IdentityError) {
            guard first.outcome != .fails else { throw .unreachable(issuer, "see above") }
            provider = try await self.provider()
            steps.append(ProviderCheckStep(.discovery, .works, "it describes itself as \(issuer)"))
        } catch {
            steps.append(ProviderCheckStep(.discovery, .fails, error.description))
            let rest = ProviderCheckStep.Name.ofEveryProvider.drop { $0 != .keys }
            return steps + rest.map { ProviderCheckStep($0, .unknown, "not tried: the provider is not known") }
        }
        do throws(IdentityError) {
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
    /// - Parameter problem: The reason why this device does not listen at the configured address; `nil` if it does.
    package func checkLogouts(at address: String, problem: String?) async -> ProviderCheckStep {
        if let problem { return ProviderCheckStep(.backChannelLogout, .fails, problem) }
        let listens = "this device listens at \(address)"
        let untried = "not tried: a logout, which needs a session; end one at the provider, and see it end here"
        let (outcome, text): Finding
        do throws(IdentityError) {
            (outcome, text) =
                switch try await provider().metadata.tellsOfLogouts {
                case true?: (.works, "\(listens), and the provider says that it reports logouts; \(untried)")
                case false?:
                    (
                        .fails,
                        "\(issuer) says that it does not report logouts; leave backChannelLogout out, and let the device ask"
                    )
                case nil: (.unknown, "\(listens); the provider does not say whether it reports logouts; \(untried)")
                }
        } catch {
            (outcome, text) = (.unknown, "\(listens); see above")
        }
        return ProviderCheckStep(.backChannelLogout, outcome, text)
    }

    private func checkServer() async -> ProviderCheckStep {
        guard issuer.address.isSecure else {
            return ProviderCheckStep(.tls, .unknown, "none is needed: the provider is on this machine")
        }
        guard let address = issuer.configurationAddress else {
            let flaw = "\(issuer) is an address to which no path can be added; correct oidcIssuer"
            return ProviderCheckStep(.tls, .fails, flaw)
        }
        switch await send(HTTPRequest(address)) {
        case .failure(let error) where ![.redirected, .cancelled].contains(error.reason):
            return ProviderCheckStep(.tls, .fails, error.description)
        case .failure, .success: return ProviderCheckStep(.tls, .works, "\(issuer.address.host) proves who it is")
        }
    }
}

/// The outcome and the text of a step.
private typealias Finding = (ProviderCheckStep.Outcome, String)

/// The request of each step, and the meaning of its response. Pure: the caller sends the requests.
struct ProviderCheck: Sendable {
    enum Plan: Sendable {
        case ask(HTTPRequest)
        /// The result is known without a request.
        case found(ProviderCheckStep)
    }

    let provider: ProviderClient
    let redirect: String
    let scopes: [String]

    private var metadata: ProviderMetadata { provider.metadata }
    private var issuer: Issuer { provider.issuer }

    /// - Parameter name: `redirect` or a later step.
    func plan(_ name: ProviderCheckStep.Name) -> Plan {
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
            let form = [
                ("grant_type", "authorization_code"), ("code", secrets.state), ("redirect_uri", redirect),
                ("code_verifier", secrets.verifier),
            ]
            return .ask(provider.request(metadata.tokenEndpoint, form))
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

    func meaning(of result: Result<HTTPResponse, HTTPError>, _ name: ProviderCheckStep.Name) -> ProviderCheckStep {
        do {
            let (outcome, text) =
                switch name {
                case .redirect: try meaningOfPage(result)
                case .endSession: try meaningOfEnd(result)
                default: try meaning(of: result.get(), name)
                }
            return ProviderCheckStep(name, outcome, text)
        } catch {
            return ProviderCheckStep(name, .fails, "\(error)")
        }
    }

    private func meaning(of response: HTTPResponse, _ name: ProviderCheckStep.Name) throws(IdentityError) -> Finding {
        if name == .revocation {
            try provider.checkRevocation(.success(response))
            return (.works, "it takes the request")
        }
        switch (name, EndpointAnswer(response)) {
        case (_, .error("invalid_client", _)), (.client, .error("unauthorized_client", _)): throw .unknownClient(issuer)
        case (.deviceCode, .granted(let json)):
            _ = try DeviceGrant.code(json, issuer)
            return (.works, "it issues device codes")
        case (.client, .error("invalid_grant", _)), (.client, .error("invalid_code", _)):
            return (.works, "it knows this client, and refuses a code that was never issued")
        case (.refresh, .error("invalid_grant", _)), (.refresh, .empty(400)), (.refresh, .empty(401)):
            return (.works, "it refuses a refresh token that was never issued")
        case (_, .error("unauthorized_client", _)), (_, .error("unsupported_grant_type", _)):
            let remedy = "allow the client the grant \(Self.grant(name)) there"
            return (.fails, "\(issuer) does not allow this client to do that; \(remedy)")
        case (_, .error(let word, _)): return (.fails, "\(issuer) refuses the request (\(word.printable(64)))")
        case (_, .granted), (_, .empty), (_, .unusable):
            let answer = "status \(response.status), which says nothing; see its own log"
            return (.fails, "\(issuer) responds with \(answer)")
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
    private func meaningOfEnd(_ result: Result<HTTPResponse, HTTPError>) throws(HTTPError) -> Finding {
        let address = metadata.endSessionEndpoint.map { "\($0)" } ?? "end_session_endpoint"
        let untried = "not tried: the end of a session, which needs one"
        switch result {
        case .failure(let error) where error.reason == .redirected: return (.works, "\(address) responds; \(untried)")
        case .failure(let error): throw error
        case .success(let response) where (200..<300).contains(response.status):
            return (.works, "\(address) responds; \(untried)")
        case .success(let response) where response.status == 429 || response.status >= 500:
            return (.fails, "\(address) responds with status \(response.status); see its own log")
        case .success(let response):
            let answer = "refuses a request that names no session (status \(response.status))"
            return (.unknown, "\(address) \(answer); \(untried)")
        }
    }

    /// A provider that knows the redirect address shows its page or redirects to it. With an unknown address it must
    /// not redirect (RFC 6749, section 4.1.2.1).
    private func meaningOfPage(_ result: Result<HTTPResponse, HTTPError>) throws(HTTPError) -> Finding {
        switch result {
        case .failure(let error) where error.reason == .redirected:
            return (.works, "it takes \(redirect), and leads on to its page")
        case .failure(let error): throw error
        case .success(let response) where (200..<300).contains(response.status):
            return (.works, "it takes \(redirect), and shows a page")
        case .success(let response) where (400..<500).contains(response.status):
            let remedy = "name its port in oidcLoopbackPorts where the provider compares ports"
            let flaw = IdentityError.redirectRefused(redirect, issuer)
            return (.fails, "it refuses the request (status \(response.status)); \(flaw), and \(remedy)")
        case .success(let response):
            return (.fails, "its page responds with status \(response.status); see its own log")
        }
    }
}
