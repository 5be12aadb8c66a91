import Basics
import DBus
import DeviceConfiguration
import FoundationEssentials
import Glibc
import HTTPListening
import Logging
import OpenIDConnect
import OrganisationIdentity
import Synchronization

/// Listens for the provider's logout tokens, at the configured address or on the socket that systemd passes, and tells
/// the broker.
actor LogoutListener {
    /// The pauses between two attempts to listen. Another program may still use the address, or this machine may not
    /// have it yet.
    private var backoff = Backoff(first: .seconds(1), longest: .seconds(10))

    private let reports: ProviderReports
    private let log: Logger
    /// The socket from systemd. It stays open until this process ends.
    private let passed: CInt?

    private var logout: (client: OpenIDConnectClient, handler: BackChannelLogout)?
    private var wanted: ListeningAddress?
    private var open: (address: ListeningAddress, listener: HTTPListener)?
    /// Whether ``open`` is being changed to match ``wanted``, and whether that has to be repeated.
    private var (isChanging, hasChanged) = (false, false)
    private var retry: Task<Void, Never>?
    /// The last failure, which is not logged again while it stays the same.
    private var problem: String?

    init(reports: ProviderReports, log: Logger) {
        self.reports = reports
        self.log = log
        passed = ListeningSocket.passed(environment: ProcessInfo.processInfo.environment)
    }

    deinit { retry?.cancel() }

    /// Applies the first or a changed configuration. Returns after the first attempt to listen.
    func use(_ current: CurrentProvider) async {
        let client = current.client
        // Keep the handler for an unchanged client, because it knows which tokens it has accepted.
        if logout?.client !== client { logout = client.map { ($0, handler(of: $0)) } }
        wanted = current.settings?.backChannelLogout
        backoff.reset()
        problem = nil
        await change()
    }

    /// The address, and why the service does not listen there; `nil` if the configuration has none.
    var state: (address: String, problem: String?)? {
        wanted.map {
            (place($0), open == nil ? problem ?? "the service does not listen at \($0.text) yet; try again" : nil)
        }
    }

    /// The actual address of the service. A passed socket may have another address than the configuration.
    private func place(_ address: ListeningAddress) -> String {
        guard let passed else { return address.text }
        let name = ListeningSocket.name(of: passed) ?? "a socket without a name"
        return name == address.text ? name : "\(name), which systemd has passed, and not at \(address.text)"
    }

    private func change() async {
        guard !isChanging else {
            hasChanged = true
            return
        }
        isChanging = true
        defer { isChanging = false }
        repeat {
            hasChanged = false
            retry?.cancel()
            guard open?.address != wanted else { continue }
            if let old = open {
                open = nil
                // Before the next listener opens, which may use the same port.
                await old.listener.close()
            }
            if let wanted, !hasChanged { listen(at: wanted) }
        } while hasChanged
    }

    private func listen(at address: ListeningAddress) {
        do {
            var options = HTTPListener.Options()
            options.isShared = passed != nil
            options.lacksDescriptors = { [log] reason in
                log.warning("logouts wait: the process cannot open more files", metadata: ["reason": "\(reason)"])
            }
            let listener = try HTTPListener(adopting: socket(address), options: options) { [weak self] request in
                guard let logout = await self?.logout?.handler else { return ListenerResponse(404) }
                return await logout.answer(request)
            }
            open = (address, listener)
            log.info("listens for logouts from the provider", metadata: ["address": "\(place(address))"])
        } catch {
            let reason = "\(error); \(remedy(address))"
            // Sign-ins and requests to the provider continue without the listener.
            if reason != problem {
                log.error(
                    "cannot listen for logouts from the provider; trying again",
                    metadata: ["reason": "\(reason)"]
                )
            }
            problem = reason
            let wait = backoff.next()
            retry = Task { [weak self] in
                guard (try? await Task.sleep(for: wait)) != nil else { return }
                await self?.change()
            }
        }
    }

    private func handler(of client: OpenIDConnectClient) -> BackChannelLogout {
        BackChannelLogout(client) { [reports] event in
            try await reports.tell(event)
        } refused: { [log] reason in
            log.warning("a logout from the provider is refused", metadata: ["reason": "\(reason)"])
        }
    }

    private func remedy(_ address: ListeningAddress) -> String {
        switch address {
        case .network: "name another address in backChannelLogout, or free this one"
        case .socket:
            "enable shared-device-identity.socket, which may write there, or name a path that this service may write to"
        }
    }

    private func socket(_ address: ListeningAddress) throws -> CInt {
        if let passed { return try ListeningSocket.duplicate(passed) }
        return switch address {
        case .network(let address, let port): try ListeningSocket.open(address: address, port: port)
        case .socket(let path): try ListeningSocket.open(path: path)
        }
    }
}
