import DBusTransport
import HTTPClient
package import Identity
package import OpenIDConnect
package import StrictJSON
import Synchronization

/// Fetches what the provider has to tell of this device's sessions (OpenID Shared Signals Framework 1.0, poll delivery by RFC 8936), and tells the
/// broker. A token is acknowledged when the broker has taken it, and not before.
package final class SharedSignals: Sendable {
    package struct Settings: Sendable, Equatable {
        package var endpoint: HTTPAddress
        /// The stream's.
        package var audience: String
        /// By which name the provider means this device.
        package var device: String?
        /// What the device's own token is to permit.
        package var scopes: [String]

        package init(endpoint: HTTPAddress, audience: String, device: String? = nil, scopes: [String] = []) {
            self.endpoint = endpoint
            self.audience = audience
            self.device = device
            self.scopes = scopes
        }
    }

    /// What is worth a line in the log.
    package enum Note: Sendable, Hashable {
        /// Events are fetched.
        case works
        /// They are not, and why; told when the reason changes.
        case fails(String)
        /// A token is refused. At most ``RefusalTally/lines`` a minute are told so.
        case refused(RefusedToken)
        /// So many further ones were refused in a minute that is over.
        case refusedMore(Int)
    }

    /// A token that is refused.
    package struct RefusedToken: Sendable, Hashable {
        /// The stream's name for it. Anything may stand there.
        package let identifier: String
        /// Whether the provider has signed it; otherwise nobody knows who has.
        package let isProviders: Bool
        /// In the words of an administrator.
        package let reason: String
    }

    private struct State {
        var stream: SignalStream
        var seen = SeenIdentifiers()
        /// The device's own token, until it ends.
        var token: (value: Secret, end: ContinuousClock.Instant)?
        /// Ends what is waited for.
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
    ///   - token: for the stream, where an administrator has given one; otherwise the device gets one by its client ID and secret.
    ///   - clock: that of the client.
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

    /// Asks until the task is cancelled.
    package func run() async {
        while !Task.isCancelled {
            await ask()
            let clock = clock
            tellRefusals(state.withLock { $0.refusals.rest(at: clock.now()) })
            let pause = state.withLock { $0.stream.rest }
            if pause > .zero { await interruptibly { try? await clock.wait(pause) } }
        }
    }

    /// There is a reason to believe that the provider can be asked: nobody waits any longer.
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

    // MARK: One question

    private func ask() async {
        let token: Secret
        do throws(SignInError) {
            token = try await authorisation()
        } catch {
            state.withLock { _ = $0.stream.fail(error.description) }
            return tell(.fails(error.description))
        }
        // Woken up to here, the question is a new one anyway.
        state.withLock { $0.isWoken = false }
        let request = state.withLock { $0.stream.question(token, at: clock.now()) }
        let result = await interruptibly { [client] in await client.ask(request) }
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

    /// - Throws: `SignInError`.
    private func authorisation() async throws(SignInError) -> Secret {
        if let token { return token }
        if let token = state.withLock({ $0.token }), clock.now() < token.end { return token.value }
        let answer = try await client.clientToken(scopes: settings.scopes)
        // Asked for anew before it ends, and not without end where it ends at once.
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

    private func tellRefusals(_ count: Int) {
        if count > 0 { note(.refusedMore(count)) }
    }

    // MARK: Tokens

    private func take(_ tokens: [SignalStream.Received]) async {
        for received in tokens {
            let settlement = await settle(received)
            state.withLock { $0.stream.settle(received.identifier, settlement) }
            switch settlement {
            case .taken, .refused: continue
            // The next one would wait for the same. All that is left comes again.
            case .later(let reason): return tell(.fails(reason))
            }
        }
        tell(.works)
    }

    private func settle(_ received: SignalStream.Received) async -> SignalStream.Settlement {
        let verdict = await client.signal(
            received.token,
            identifier: received.identifier,
            audience: settings.audience
        )
        switch verdict {
        case .unknown(let reason): return .later(reason)
        case .refused(let reason, let text, let isProviders):
            if isProviders, let failure = await told([meaning.doubt]) { return .later(failure) }
            tell(RefusedToken(identifier: received.identifier, isProviders: isProviders, reason: text))
            return .refused(reason, text)
        case .accepted(let token):
            // It comes again where the acknowledgement was lost.
            guard state.withLock({ $0.seen.take(token.identifier, at: clock.now()) }) else { return .taken }
            guard let failure = await told(meaning.events(of: token)) else { return .taken }
            // It counts when it comes again.
            state.withLock { $0.seen.forget(token.identifier) }
            return .later(failure)
        }
    }

    /// - Returns: why the broker does not know of all of it; `nil` where it does.
    private func told(_ events: [ProviderEvent]) async -> String? {
        for event in events {
            do {
                try await report(event)
            } catch {
                return "the broker does not take what the provider tells: \(error)"
            }
        }
        return nil
    }

    // MARK: Check

    /// Whether the stream answers this device. No event is taken from it.
    package func check() async -> ProviderCheckStep {
        do throws(SignInError) {
            let token = try await authorisation()
            switch await client.ask(SignalStream.trial(settings.endpoint, token)) {
            case .failure(let error): return ProviderCheckStep(.sharedSignals, .fails, error.description)
            case .success(let response):
                switch response.status {
                case 401, 403:
                    return ProviderCheckStep(.sharedSignals, .fails, refusal(response.status))
                case 200: break
                default:
                    return ProviderCheckStep(
                        .sharedSignals,
                        .fails,
                        "\(settings.endpoint) answers with status \(response.status); compare sharedSignals with the stream's "
                            + "endpoint_url at the provider"
                    )
                }
                // Some give events although none were asked for; they come again.
                if case .failure(let flaw) = SignalStream.tokens(in: response) {
                    return ProviderCheckStep(
                        .sharedSignals,
                        .fails,
                        "\(flaw.text); see that \(settings.endpoint) is a stream with poll delivery (RFC 8936)"
                    )
                }
                return ProviderCheckStep(.sharedSignals, .works, "\(settings.endpoint) gives this device its events")
            }
        } catch {
            return ProviderCheckStep(.sharedSignals, .fails, error.description)
        }
    }
}
