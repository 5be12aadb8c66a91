import DBusTransport
import DeviceConfiguration
import FoundationEssentials
import Glibc
import Logging
import OpenIDConnect
import OrganisationIdentity
import Synchronization

/// Listens for the provider's word that sessions have ended, at the address of the configuration or the socket that systemd passes, and tells the broker.
final class LogoutListener: Sendable {
    private struct State {
        var address: ListeningAddress?
        var listener: HTTPListener?
        var logout: (client: OpenIDConnectClient, handler: BackChannelLogout)?
    }

    private let reports: ProviderReports
    private let log: Logger
    private let state = Locked(State())
    /// From systemd, for as long as this process runs.
    private let passed: CInt?

    init(reports: ProviderReports, log: Logger) {
        self.reports = reports
        self.log = log
        passed = ListeningSocket.passed(environment: ProcessInfo.processInfo.environment)
    }

    /// The configuration has changed, or was read for the first time.
    func use(_ current: CurrentProvider) {
        let address = current.settings?.backChannelLogout
        let client = current.client
        let isSame = state.withLock { state -> Bool in
            // It knows which tokens it has taken.
            if state.logout?.client !== client { state.logout = client.map { ($0, handler(of: $0)) } }
            return state.address == address
        }
        guard !isSame else { return }
        // Closed before another one is opened at the same address.
        let old = state.withLock { state -> HTTPListener? in
            defer { (state.listener, state.address) = (nil, nil) }
            return state.listener
        }
        withExtendedLifetime(old) {}
        guard let address else { return }
        do {
            let listener = try HTTPListener(adopting: open(address)) { [weak self] request in
                guard let logout = self?.state.withLock({ $0.logout?.handler }) else { return ListenerResponse(404) }
                return await logout.answer(request)
            }
            state.withLock { ($0.listener, $0.address) = (listener, address) }
            log.info("listens for logouts of the provider's", metadata: ["address": "\(address.text)"])
        } catch {
            // Sign-ins go on, and the provider is asked: only this way is closed.
            log.error("nobody hears of logouts at the provider", metadata: ["reason": "\(error)"])
        }
    }

    private func handler(of client: OpenIDConnectClient) -> BackChannelLogout {
        BackChannelLogout(client) { [reports] event in
            try await reports.tell(event)
        } refused: { [log] reason in
            log.warning("a logout of the provider's is refused", metadata: ["reason": "\(reason)"])
        }
    }

    private func open(_ address: ListeningAddress) throws -> CInt {
        if let passed { return dup(passed) }
        return switch address {
        case .network(let address, let port): try ListeningSocket.open(address: address, port: port)
        case .socket(let path): try ListeningSocket.open(path: path)
        }
    }
}
