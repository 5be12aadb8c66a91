import DBusTransport
import HTTPClient
package import HTTPListening
package import Identity
package import OpenIDConnect
import StrictJSON
import Synchronization

/// Takes the provider's word that sessions have ended (OpenID Connect Back-Channel Logout 1.0, section 2.5 to 2.8), and hands it on.
package final class BackChannelLogout: Sendable {
    /// Tells the broker.
    ///
    /// - Throws: where the broker does not know of it then; the provider may try again.
    package typealias Report = @Sendable (ProviderEvent) async throws -> Void

    /// How many tokens a second may have the provider's keys read, or wait for them.
    private static let keyRequestsPerSecond = 10

    private static let busy = ListenerResponse(429, fields: ["Retry-After": "1"])

    private let client: OpenIDConnectClient
    private let report: Report
    /// Charged by tokens that the known keys do not verify, so that a flood of them delays no genuine one.
    private let keyRequests = Locked(RequestRate(perSecond: keyRequestsPerSecond, at: .now))
    private let seen = Locked(SeenIdentifiers())
    /// Of what anybody can send, and of what the provider has signed: a flood of the one hides nothing of the other.
    private let refusals = Locked(RefusalTally())
    private let refusalsOfSigned = Locked(RefusalTally())
    /// The reason of a request that is refused, without anything of it; or how many more were.
    private let refused: @Sendable (String) -> Void

    package init(
        _ client: OpenIDConnectClient,
        report: @escaping Report,
        refused: @escaping @Sendable (String) -> Void = { _ in }
    ) {
        self.client = client
        self.report = report
        self.refused = refused
    }

    /// The answer: 200 also where the session is nobody's here, because the provider has to do nothing more then.
    package func answer(_ request: ReceivedRequest) async -> ListenerResponse {
        guard request.method == "POST" else { return ListenerResponse(405) }
        let type = request.fields["content-type"].map { $0.prefix { $0 != ";" }.filter { $0 != " " }.lowercased() }
        guard type == FormFields.contentType else { return ListenerResponse(415) }
        guard let text = String(validating: request.body, as: UTF8.self),
            let token = FormFields.decode(text)?["logout_token"]
        else { return refuse("there is no logout_token", refusals) }
        let logout: LogoutToken
        do throws(SignInError) {
            if let known = try client.logoutTokenByKnownKeys(token) {
                logout = known
            } else {
                guard keyRequests.withLock({ $0.take(at: .now) }) else { return Self.busy }
                logout = try await client.logoutToken(token)
            }
        } catch {
            return refuse(error.description, refusals)
        }
        guard seen.withLock({ $0.take(logout.identifier, at: .now) }) else {
            return refuse("the token came twice", refusalsOfSigned)
        }
        let event = ProviderEvent(
            .ended,
            issuer: client.issuer.text,
            subject: logout.subject,
            session: logout.sessionIdentifier,
            date: logout.date
        )
        do {
            // The session has ended, even if the provider does not wait for the response.
            try await Task { [report] in try await report(event) }.value
            return ListenerResponse(200)
        } catch {
            // It counts when it comes again.
            seen.withLock { $0.forget(logout.identifier) }
            return refuse("the broker does not take it: \(error)", refusalsOfSigned)
        }
    }

    private func refuse(_ reason: String, _ tally: borrowing Locked<RefusalTally>) -> ListenerResponse {
        // Whoever reaches the address may be refused ten times a second.
        let (isWritten, counted) = tally.withLock { $0.take(at: .now) }
        if counted > 0 { refused("\(counted) more since the last of these lines") }
        if isWritten { refused(reason) }
        return ListenerResponse(
            400,
            fields: ["Content-Type": "application/json"],
            body: #"{"error":"invalid_request"}"#
        )
    }
}
