import DBus
import DBusService
@_spi(Extensions) import SharedDevice

/// A service under the broker's name that gives the responses of a test.
struct StandInBroker {
    typealias Response = @Sendable (BrokerProtocol.Fields) throws -> BrokerProtocol.Fields

    private let connection: DBusConnection
    private let object: Observation

    init(on bus: Bus, _ responses: [BrokerProtocol.Method: Response]) async throws {
        connection = try DBusConnection.open(bus)
        let methods = responses.map { method, response in
            DBusInterface.Method(
                method.rawValue,
                in: method == .getDeviceInformation ? [] : [.init("request", "a{sv}")],
                out: [.init("answer", "a{sv}")]
            ) { call in [.fields(try response(call.arguments.first?.fieldsValue ?? [:]))] }
        }
        let interface = DBusInterface(BrokerProtocol.interface, methods: methods)
        object = try connection.export([interface], at: BrokerProtocol.path)
        try await connection.requestName(BrokerProtocol.busName)
    }
}
