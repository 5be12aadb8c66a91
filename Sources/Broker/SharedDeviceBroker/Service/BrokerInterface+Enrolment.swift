import DBusTransport
import Logging
import SharedDevice

/// What makes the device one of an organisation's, and what ends that.
extension BrokerInterface {
    func join(_ fields: BrokerProtocol.Fields, caller: Callers.Caller) async throws -> BrokerProtocol.Fields {
        let tenant = try await broker.join(try request(fields), organization: status.current.organization)
        log.notice("joined", metadata: ["tenant": "\(tenant)", "caller": "\(caller.program)"])
        return ["tenant": .string(tenant)]
    }

    func leave(_ fields: BrokerProtocol.Fields, caller: Callers.Caller) async throws -> BrokerProtocol.Fields {
        try await broker.leave(try request(fields))
        log.notice("left", metadata: ["caller": "\(caller.program)"])
        return [:]
    }

    /// Name and password, as a request has them.
    func request(_ fields: BrokerProtocol.Fields) throws(BrokerProtocol.Malformed) -> SignInRequest {
        guard let username = fields["username"]?.stringValue else { throw BrokerProtocol.Malformed("username") }
        return SignInRequest(username: username, password: fields["password"]?.stringValue.map { Secret($0) })
    }
}
