import Basics
import DBus
import DBusService
import FoundationEssentials
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization
import TestProviders

/// Receives provider events in place of the broker, and records them.
final class EventRecorder: Sendable {
    private let broker: DBusConnection
    private let state = Locked((events: [[String: String]](), refuses: false))
    private let object = Locked<Observation?>(nil)

    init(_ broker: DBusConnection) throws {
        self.broker = broker
        let method = DBusInterface.Method(
            "ReportProviderEvents",
            in: [.init("request", "a{sv}")],
            out: [.init("answer", "a{sv}")]
        ) { [weak self] call in
            let told = call.arguments.first?.fieldsValue?["events"]?.elementsValue ?? []
            let events = told.map { ($0.fieldsValue ?? [:]).compactMapValues(\.stringValue) }
            let isTaken = self?.state.withLock { state in
                if !state.refuses { state.events += events }
                return !state.refuses
            }
            guard isTaken == true else { throw MethodFailure(name: "org.example.No", message: "no") }
            return [.fields([:])]
        }
        let interface = DBusInterface(BrokerProtocol.interface, methods: [method])
        let token = try broker.export([interface], at: BrokerProtocol.path)
        object.withLock { $0 = token }
    }

    var events: [[String: String]] { state.withLock { $0.events } }
    func refuse(_ refuses: Bool) { state.withLock { $0.refuses = refuses } }
}

/// A device that listens for logouts, and a recorder in place of its broker.
final class LogoutDevice: Sendable {
    let device: IdentityDevice
    /// The port on 127.0.0.1.
    let port: UInt16
    let recorder: EventRecorder

    /// - Parameters:
    ///   - port: the port to listen on; by default a free one.
    ///   - address: the address to listen on instead.
    ///   - passed: the path of a socket that the device inherits from its parent process.
    init(fault: String, port: UInt16? = nil, at address: String? = nil, passed: String? = nil) async throws {
        self.port = try port ?? freePort()
        let key = Self.key(address ?? "127.0.0.1:\(self.port)")
        device = try await IdentityDevice(fault: fault, more: key, passed: passed)
        recorder = try EventRecorder(device.broker)
    }

    var events: [[String: String]] { recorder.events }
    var log: String { device.process.errorText }

    private static func key(_ address: String) -> String { #", "backChannelLogout": "\#(address)""# }

    func listen(at address: String, more: String = "") async throws {
        try await device.configure(more: Self.key(address) + more)
    }

    /// A new logout token of the provider.
    func token() async throws -> String { try await device.test.page("logout-token") }

    static func request(_ body: String) -> String {
        let type = "application/x-www-form-urlencoded"
        return "POST /logout HTTP/1.1\r\nContent-Type: \(type)\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)"
    }

    /// Sends a logout token to the device as the provider does, and returns the whole response.
    func post(_ token: String, to path: String? = nil) async throws -> String {
        let text = Self.request("logout_token=\(token)")
        guard let path else { return try await exchange(text, port: port) }
        return try await onThread {
            let client = try StreamSocket(to: path)
            client.send(text)
            return client.readToEnd()
        }
    }
}
