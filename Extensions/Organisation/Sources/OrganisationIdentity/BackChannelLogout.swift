import Basics
import DBus
import HTTPClient
package import HTTPListening
package import Identity
package import OpenIDConnect
import Synchronization

/// Receives logout tokens from the provider (OpenID Connect Back-Channel Logout 1.0, sections 2.5 to 2.8) and reports
/// them to the broker.
package final class BackChannelLogout: Sendable {
    /// Reports an event to the broker.
    ///
    /// - Throws: If the broker has not accepted the event; the provider may retry.
    package typealias Report = @Sendable (ProviderEvent) async throws -> Void

    /// The rate limit, per second, for tokens that read the provider's keys or wait for that read.
    private static let keyRequestsPerSecond = 10

    private static let busy = ListenerResponse(429, fields: ["Retry-After": "1"])

    private let client: OpenIDConnectClient
    private let report: Report
    /// Charged only by tokens that the known keys do not verify, so that a flood of them does not delay a genuine
    /// token.
    private let keyRequests = Locked(RequestRate(perSecond: keyRequestsPerSecond, at: .now))
    private let seen = Locked(SeenIdentifiers())
    /// Requests that any client can send and tokens that the provider has signed are counted separately, so that a
    /// flood of such requests does not hide a rejected token of the provider.
    private let refusals = Locked(RefusalTally())
    private let refusalsOfSigned = Locked(RefusalTally())
    /// Called with the reason of a rejected request, without any of its content, or with the number of further ones.
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

    /// Responds to a request. The status is 200 also for a session that is not on this device, because the provider has
    /// nothing more to do then.
    package func answer(_ request: ReceivedRequest) async -> ListenerResponse {
        guard request.method == "POST" else { return ListenerResponse(405) }
        let type = request.fields["content-type"].map { $0.prefix { $0 != ";" }.filter { $0 != " " }.lowercased() }
        guard type == FormFields.contentType else { return ListenerResponse(415) }
        guard let text = String(validating: request.body, as: UTF8.self),
            let token = FormFields.decode(text)?["logout_token"]
        else { return refuse("the request has no logout_token", refusals) }
        let logout: LogoutToken
        do throws(IdentityError) {
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
            return refuse("the token was received before", refusalsOfSigned)
        }
        let event = ProviderEvent(
            .ended,
            issuer: client.issuer.text,
            subject: logout.subject,
            session: logout.sessionIdentifier,
            date: logout.date
        )
        do {
            // The report runs in a separate task, so that it continues if the provider disconnects: the session has
            // ended in any case.
            try await Task { [report] in try await report(event) }.value
            return ListenerResponse(200)
        } catch {
            // A retry must not count as a duplicate.
            seen.withLock { $0.forget(logout.identifier) }
            return refuse("the broker does not accept it: \(error)", refusalsOfSigned)
        }
    }

    private func refuse(_ reason: String, _ tally: borrowing Locked<RefusalTally>) -> ListenerResponse {
        // Any client that reaches the address can cause rejections, so only a few get a log line.
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

/// A rate limit with bursts: at most `perSecond` requests a second, and as many at once after a quiet period. Pure.
package struct RequestRate: Sendable {
    private let perSecond: Double
    private var room: Double
    private var last: ContinuousClock.Instant

    package init(perSecond: Int, at now: ContinuousClock.Instant) {
        self.perSecond = Double(perSecond)
        room = Double(perSecond)
        last = now
    }

    /// - Returns: Whether the request may proceed.
    package mutating func take(at now: ContinuousClock.Instant) -> Bool {
        room = min(perSecond, room + (now - last) / .seconds(1) * perSecond)
        last = now
        guard room >= 1 else { return false }
        room -= 1
        return true
    }
}

/// Keeps a flood of rejected requests from filling the log. A few rejections a minute get a log line each; the rest are
/// counted and reported as one number. Pure: the caller writes the lines.
package struct RefusalTally: Sendable {
    /// The number of rejections per ``window`` that get their own line.
    package static let lines = 5
    package static let window = Duration.seconds(60)

    private var beganAt: ContinuousClock.Instant?
    private var written = 0
    private var counted = 0

    package init() {}

    /// Counts a rejection. Returns whether to log it, and how many unlogged rejections of an earlier window to report
    /// first.
    package mutating func take(at now: ContinuousClock.Instant) -> (isWritten: Bool, counted: Int) {
        let before = rest(at: now)
        if isOver(at: now) { (beganAt, written) = (now, 0) }
        guard written < Self.lines else {
            counted += 1
            return (false, before)
        }
        written += 1
        return (true, before)
    }

    /// The number of unlogged rejections if the window is over. Each is returned once.
    package mutating func rest(at now: ContinuousClock.Instant) -> Int {
        guard isOver(at: now) else { return 0 }
        defer { counted = 0 }
        return counted
    }

    private func isOver(at now: ContinuousClock.Instant) -> Bool { beganAt.map { now >= $0 + Self.window } ?? true }
}
