import Basics
import DBus
import HTTPClient
package import Identity
package import OpenIDConnect
import Synchronization

/// Polls the provider's stream of security events (OpenID Shared Signals Framework 1.0, poll delivery by RFC 8936) and
/// reports the events of this device's sessions to the broker. A token is acknowledged only after the broker has
/// accepted its events.
package final class SharedSignals: Sendable {
    package struct Settings: Sendable, Equatable {
        package var endpoint: HTTPAddress
        /// The audience of the stream's tokens.
        package var audience: String
        /// The provider's identifier of this device.
        package var device: String?
        /// The scopes of the device's own token.
        package var scopes: [String]

        package init(endpoint: HTTPAddress, audience: String, device: String? = nil, scopes: [String] = []) {
            self.endpoint = endpoint
            self.audience = audience
            self.device = device
            self.scopes = scopes
        }
    }

    /// A state or an event for the log.
    package enum Note: Sendable, Hashable {
        /// The stream delivers events.
        case works
        /// Polling fails, with the reason. Reported when the reason changes.
        case fails(String)
        /// A token was rejected. At most ``RefusalTally/lines`` a minute are reported.
        case refused(RefusedToken)
        /// The number of further tokens that were rejected within a minute that has passed.
        case refusedMore(Int)
    }

    package struct RefusedToken: Sendable, Hashable {
        /// The stream's identifier for it. Untrusted text.
        package let identifier: String
        /// Whether the provider has signed it; otherwise the sender is unknown.
        package let isProviders: Bool
        /// For an administrator to read.
        package let reason: String
    }

    private struct State {
        var stream: SignalStream
        var seen = SeenIdentifiers()
        /// The device's own token, until it expires.
        var token: (value: Secret, end: ContinuousClock.Instant)?
        /// Cancels the pause or request that is in flight.
        var interrupt: (@Sendable () -> Void)?
        var isWoken = false
        var lastNote: Note?
        var refusals = RefusalTally()
    }

    private let client: OpenIDConnectClient
    private let settings: Settings
    private let token: Secret?
    private let clock: OpenIDConnectClient.Clock
    private let meaning: SignalMeaning
    private let report: BackChannelLogout.Report
    private let note: @Sendable (Note) -> Void
    private let state: Locked<State>

    /// - Parameters:
    ///   - token: The administrator's token for the stream; `nil` to request one with the client ID and secret.
    ///   - clock: The clock of `client`.
    package init(
        _ client: OpenIDConnectClient,
        _ settings: Settings,
        token: Secret? = nil,
        clock: OpenIDConnectClient.Clock = .init(),
        note: @escaping @Sendable (Note) -> Void = { _ in },
        report: @escaping BackChannelLogout.Report
    ) {
        self.client = client
        self.settings = settings
        self.token = token
        self.clock = clock
        self.note = note
        self.report = report
        meaning = SignalMeaning(issuer: client.issuer, device: settings.device)
        state = Locked(State(stream: SignalStream(endpoint: settings.endpoint)))
    }

    /// Polls until the task is cancelled.
    package func run() async {
        while !Task.isCancelled {
            await ask()
            let clock = clock
            tellRefusals(state.withLock { $0.refusals.rest(at: clock.now()) })
            let pause = state.withLock { $0.stream.pause }
            if pause > .zero { await interruptibly { try? await clock.wait(pause) } }
        }
    }

    /// Ends the current pause or request, because the provider may be reachable again.
    package func wake() {
        let interrupt = state.withLock { state in
            state.stream.wake()
            state.isWoken = true
            return state.interrupt
        }
        interrupt?()
    }

    private func interruptibly<Value: Sendable>(_ body: @escaping @Sendable () async -> Value) async -> Value {
        let task = Task { await body() }
        let isWoken = state.withLock { state in
            defer { state.isWoken = false }
            state.interrupt = { task.cancel() }
            return state.isWoken
        }
        if isWoken { task.cancel() }
        defer { state.withLock { $0.interrupt = nil } }
        return await withTaskCancellationHandler {
            await task.value
        } onCancel: {
            task.cancel()
        }
    }

    // MARK: One request

    private func ask() async {
        let token: Secret
        do throws(IdentityError) {
            token = try await authorisation()
        } catch {
            state.withLock { _ = $0.stream.fail(error.description) }
            return tell(.fails(error.description))
        }
        // A wake-up before this point needs no interruption: the request is about to be sent anyway.
        state.withLock { $0.isWoken = false }
        let request = state.withLock { $0.stream.question(token, at: clock.now()) }
        let result = await interruptibly { [client] in await client.send(request) }
        switch state.withLock({ $0.stream.handle(result, at: clock.now()) }) {
        case .interrupted: return
        case .quiet: tell(.works)
        case .failed(let reason): tell(.fails(reason))
        case .unauthorised(let status):
            state.withLock { state in
                state.token = nil
                state.stream.fail("")
            }
            tell(.fails(refusal(status)))
        case .tokens(let tokens): await take(tokens)
        }
    }

    private func refusal(_ status: Int) -> String {
        let remedy =
            token == nil
            ? "allow the client the scopes \(settings.scopes.joined(separator: " ")), or give the service the credential "
                + "shared-signals-token"
            : "put a new token into the credential shared-signals-token"
        return "\(settings.endpoint) refuses this device's token (status \(status)); \(remedy)"
    }

    private func authorisation() async throws(IdentityError) -> Secret {
        if let token { return token }
        if let token = state.withLock({ $0.token }), clock.now() < token.end { return token.value }
        let answer = try await client.clientToken(scopes: settings.scopes)
        // Renewed 30 s before the token expires, and at most every 30 s even if the provider's tokens expire at once.
        let end = clock.now() + max(.seconds(30), answer.lifetime - .seconds(30))
        state.withLock { $0.token = (answer.accessToken, end) }
        return answer.accessToken
    }

    private func tell(_ note: Note) {
        let isNews = state.withLock { state in
            defer { state.lastNote = note }
            return state.lastNote != note
        }
        if isNews { self.note(note) }
    }

    private func tell(_ refused: RefusedToken) {
        let (isWritten, counted) = state.withLock { $0.refusals.take(at: clock.now()) }
        tellRefusals(counted)
        if isWritten { note(.refused(refused)) }
    }

    private func tellRefusals(_ count: Int) { if count > 0 { note(.refusedMore(count)) } }

    // MARK: Tokens

    private func take(_ tokens: [SignalStream.Received]) async {
        for received in tokens {
            let settlement = await settle(received)
            state.withLock { $0.stream.settle(received.identifier, settlement) }
            switch settlement {
            case .taken, .refused: continue
            // Stop at the first failure: the next token would fail as well, and the provider delivers the rest again.
            case .later(let reason): return tell(.fails(reason))
            }
        }
        tell(.works)
    }

    private func settle(_ received: SignalStream.Received) async -> SignalStream.Settlement {
        let verdict = await client.signal(received.token, identifier: received.identifier, audience: settings.audience)
        switch verdict {
        case .unknown(let reason): return .later(reason)
        case .refused(let reason, let text, let isProviders):
            if isProviders, let failure = await told([meaning.doubt]) { return .later(failure) }
            tell(RefusedToken(identifier: received.identifier, isProviders: isProviders, reason: text))
            return .refused(reason, text)
        case .accepted(let token):
            // The provider delivers a token again if the acknowledgement was lost.
            guard state.withLock({ $0.seen.take(token.identifier, at: clock.now()) }) else { return .taken }
            guard let failure = await told(meaning.events(of: token)) else { return .taken }
            // A retry must not count as a duplicate.
            state.withLock { $0.seen.forget(token.identifier) }
            return .later(failure)
        }
    }

    /// - Returns: The reason if the broker has not accepted all events; `nil` if it has.
    private func told(_ events: [ProviderEvent]) async -> String? {
        for event in events {
            do {
                try await report(event)
            } catch {
                return "the broker does not accept the provider's event: \(error)"
            }
        }
        return nil
    }

    // MARK: Check

    /// Checks that the stream responds to this device. It takes no event from the stream.
    package func check() async -> ProviderCheckStep {
        do {
            let request = SignalStream.trial(settings.endpoint, try await authorisation())
            let response = try await client.send(request).get()
            switch response.status {
            case 200: break
            case 401, 403: throw Problem(refusal(response.status))
            default:
                throw Problem(
                    "\(settings.endpoint) responds with status \(response.status); compare sharedSignals with the stream's "
                        + "endpoint_url at the provider"
                )
            }
            do throws(Problem) {
                // Some providers return events although none were requested. They deliver them again.
                _ = try SignalStream.tokens(in: response)
            } catch {
                throw Problem("\(error); see that \(settings.endpoint) is a stream with poll delivery (RFC 8936)")
            }
            return ProviderCheckStep(.sharedSignals, .works, "\(settings.endpoint) gives this device its events")
        } catch {
            return ProviderCheckStep(.sharedSignals, .fails, "\(error)")
        }
    }
}

/// Translates a security event into events for this device's broker. Pure.
struct SignalMeaning: Sendable {
    let issuer: Issuer
    /// The provider's identifier of this device; `nil` if it has none.
    let device: String?

    /// The events to report to the broker, in this order.
    func events(of token: SecurityEventToken) -> [ProviderEvent] {
        var told: [ProviderEvent] = []
        for event in SecurityEventToken.Event.allCases where token.events.contains(event) {
            let next: ProviderEvent? =
                switch event {
                case .sessionRevoked, .sessionsRevoked, .accountDisabled, .accountPurged: person(.ended, token)
                case .credentialChange: person(.reauthenticate, token)
                case .deviceComplianceChange: compliance(token)
                case .verification: nil
                }
            // Two events with the same meaning are reported once.
            if let next, !told.contains(next) { told.append(next) }
        }
        return told
    }

    /// The event for a signed token that is rejected: it may have concerned any person who is signed in here.
    var doubt: ProviderEvent { ProviderEvent(.doubt, issuer: issuer.text) }

    private func person(_ kind: ProviderEvent.Kind, _ token: SecurityEventToken) -> ProviderEvent? {
        let isElsewhere = token.device.map { $0 != device } ?? false
        if isElsewhere, device != nil { return nil }
        let isClear = !token.isNarrower && !isElsewhere && (token.subject ?? token.session) != nil
        return ProviderEvent(
            isClear ? kind : .doubt,
            issuer: issuer.text,
            subject: token.subject,
            session: isClear ? token.session : nil,
            date: token.date
        )
    }

    private func compliance(_ token: SecurityEventToken) -> ProviderEvent? {
        if let device, token.device != device { return nil }
        // Either the event may concern another device, or it does not state the device's compliance.
        guard device != nil, let isCompliant = token.isCompliant else { return doubt }
        return ProviderEvent(isCompliant ? .compliant : .notCompliant, issuer: issuer.text, date: token.date)
    }
}
