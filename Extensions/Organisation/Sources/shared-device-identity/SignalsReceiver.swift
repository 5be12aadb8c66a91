import Basics
import DBus
import DeviceConfiguration
import FoundationEssentials
import Identity
import Logging
import OpenIDConnect
import OrganisationIdentity
@_spi(Extensions) import SharedDevice
import Synchronization

/// Fetches the provider's events from the configured stream.
final class SignalsReceiver: Sendable {
    private struct State {
        /// A different client means a different provider.
        var client: OpenIDConnectClient?
        var settings: SignalStreamSettings?
        var signals: SharedSignals?
        var task: Task<Void, Never>?
    }

    private let reports: ProviderReports
    private let token: Secret?
    private let log: Logger
    private let state = Locked(State())

    /// - Parameter token: The token for the stream. With `nil`, the device obtains one with its client ID and secret.
    init(reports: ProviderReports, token: Secret?, log: Logger) {
        self.reports = reports
        self.token = token
        self.log = log
    }

    deinit { state.withLock { $0.task }?.cancel() }

    /// Applies the first or a changed configuration. An unchanged stream continues, because it knows which tokens it
    /// has accepted.
    func use(_ current: CurrentProvider) {
        let (client, settings) = (current.client, current.settings?.sharedSignals)
        let isSame = state.withLock { $0.client === client && $0.settings == settings }
        guard !isSame else { return }
        stop()
        let signals = client.flatMap { client in
            settings.flatMap { make(client, $0, current.settings?.clientIdentifier ?? "") }
        }
        state.withLock { state in
            (state.client, state.settings, state.signals) = (client, settings, signals)
            state.task = signals.map { signals in Task { await signals.run() } }
        }
        if let settings { log.info("events are fetched", metadata: ["endpoint": "\(settings.endpoint)"]) }
    }

    func stop() {
        let task = state.withLock { state in
            defer { state = State() }
            return state.task
        }
        task?.cancel()
    }

    /// The network is back: retries at once.
    func wake() { state.withLock { $0.signals }?.wake() }

    /// Whether the stream responds; `nil` if the configuration names none.
    func check() async -> ProviderCheckStep? { await state.withLock { $0.signals }?.check() }

    private func make(
        _ client: OpenIDConnectClient,
        _ settings: SignalStreamSettings,
        _ clientIdentifier: String
    ) -> SharedSignals? {
        // The configuration has validated the address.
        guard let endpoint = HTTPAddress(settings.endpoint) else { return nil }
        let (log, reports) = (log, reports)
        return SharedSignals(
            client,
            SharedSignals.Settings(
                endpoint: endpoint,
                audience: settings.audience ?? clientIdentifier,
                device: settings.device,
                scopes: settings.scopes
            ),
            token: token
        ) { note in
            switch note {
            case .works: log.info("the stream of the provider's events responds")
            case .fails(let reason):
                log.error("the provider's events are not fetched", metadata: ["reason": "\(reason)"])
            case .refused(let token):
                let signer = token.isProviders ? client.issuer.text : "an unknown key"
                log.warning(
                    "an event of the stream is refused",
                    metadata: [
                        "endpoint": "\(endpoint)", "token": "\(token.identifier.printable(64))",
                        "signedBy": "\(signer)", "reason": "\(token.reason)",
                    ]
                )
            case .refusedMore(let count):
                log.warning(
                    "further events of the stream were refused in the minute before",
                    metadata: ["endpoint": "\(endpoint)", "count": "\(count)"]
                )
            }
        } report: { event in
            try await reports.tell(event)
        }
    }
}

/// Reports the provider's events to the broker.
struct ProviderReports: Sendable {
    let connection: DBusConnection

    /// - Throws: An error if the broker did not receive the event.
    func tell(_ event: ProviderEvent) async throws {
        var fields: BrokerProtocol.Fields = ["kind": .string(event.kind.rawValue), "issuer": .string(event.issuer)]
        fields["subject"] = event.subject.map { .string($0) }
        fields["session"] = event.session.map { .string($0) }
        fields["time"] = event.date.map { .double($0.timeIntervalSince1970) }
        _ = try await connection.call(
            .methodCall(
                destination: BrokerProtocol.busName,
                path: BrokerProtocol.path,
                interface: BrokerProtocol.interface,
                member: BrokerProtocol.Method.reportProviderEvents.rawValue,
                arguments: [.fields(["events": .array([.fields(fields)], of: "a{sv}")])]
            ),
            timeout: .seconds(20)
        )
    }
}
