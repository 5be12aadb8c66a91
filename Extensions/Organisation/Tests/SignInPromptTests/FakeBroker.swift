import Basics
import DBus
import DBusService
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization

/// A broker with an organisation's provider, as a prompt sees it. Records all calls.
final class FakeBroker: Sendable {
    typealias Fields = BrokerProtocol.Fields

    private let connection: DBusConnection
    private let token: Observation
    private let calls: Calls

    private final class Calls: Sendable {
        let entries = Locked<[(method: String, fields: Fields)]>([])
    }

    /// - Parameters:
    ///   - ports: the ports of the configuration.
    ///   - answers: the response to each method.
    init(
        _ bus: PrivateBus,
        ports: [UInt32] = [],
        answers: @escaping @Sendable (BrokerProtocol.Method, Fields) async throws -> Fields
    ) async throws {
        let calls = Calls()
        self.calls = calls
        connection = try DBusConnection.open(bus.bus)
        func method(_ method: BrokerProtocol.Method) -> DBusInterface.Method {
            DBusInterface.Method(method.rawValue, in: [.init("request", "a{sv}")], out: [.init("answer", "a{sv}")]) {
                let fields = $0.arguments.first?.fieldsValue ?? [:]
                calls.entries.withLock { $0.append((method.rawValue, fields)) }
                return [.fields(try await answers(method, fields))]
            }
        }
        let information = DBusInterface.Method("GetDeviceInformation", out: [.init("answer", "a{sv}")]) { _ in
            [.fields(["mode": .string("shared"), "loopbackPorts": .array(ports.map(DBusValue.uint32), of: "u")])]
        }
        let methods = [.beginSignIn, .completeSignIn, .awaitSignIn, .cancelSignIn].map(method) + [information]
        token = try connection.export(
            [DBusInterface(BrokerProtocol.interface, methods: methods)],
            at: BrokerProtocol.path
        )
        try await connection.requestName(BrokerProtocol.busName)
    }

    func asked(_ method: BrokerProtocol.Method) -> [Fields] {
        calls.entries.withLock { $0.filter { $0.method == method.rawValue }.map(\.fields) }
    }

    static let signedIn: Fields = ["username": .string("ada"), "epoch": .uint64(7)]

    static func refusal(_ code: SharedDeviceError.Code, _ message: String) -> MethodFailure {
        MethodFailure(name: BrokerProtocol.errorPrefix + code.description, message: message)
    }
}
