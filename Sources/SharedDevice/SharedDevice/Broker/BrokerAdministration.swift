public import DBus

@_spi(Extensions) public struct BrokerAdministration: Sendable {
    @_spi(Extensions) public let connection: DBusConnection

    /// Connects to the broker's bus. Whether a broker is there shows with the first call.
    ///
    /// - Throws: ``SharedDeviceError``; `brokerUnavailable` if there is no such bus.
    @_spi(Extensions) public init(bus: Bus) throws(SharedDeviceError) {
        do throws(DBusError) {
            connection = try DBusConnection.open(bus)
        } catch {
            throw SharedDeviceError(error, attempted: "reach the broker")
        }
    }

    /// Calls the broker and waits for the response, without blocking a thread.
    ///
    /// - Parameters:
    ///   - fields: the request; `nil` for a method without arguments.
    ///   - attempted: the operation, for the error.
    /// - Throws: ``SharedDeviceError``: the broker's refusal, or `brokerUnavailable` if there is no response for any
    ///   reason.
    @_spi(Extensions) public func call(
        _ method: BrokerProtocol.Method,
        _ fields: BrokerProtocol.Fields? = [:],
        attempted: String = "ask the broker",
        timeout: Duration = .seconds(25)
    ) async throws(SharedDeviceError) -> BrokerProtocol.Fields {
        do throws(DBusError) {
            return try Self.answer(await connection.call(try Self.message(method, fields), timeout: timeout), attempted)
        } catch {
            throw SharedDeviceError(error, attempted: attempted)
        }
    }

    /// Like ``call(_:_:attempted:timeout:)``, but blocks this thread, for a program that has nothing else to do.
    @_spi(Extensions) public func callAndWait(
        _ method: BrokerProtocol.Method,
        _ fields: BrokerProtocol.Fields? = [:],
        attempted: String = "ask the broker",
        timeout: Duration = .seconds(25)
    ) throws(SharedDeviceError) -> BrokerProtocol.Fields {
        do throws(DBusError) {
            return try Self.answer(
                connection.callAndWait(try Self.message(method, fields), timeout: timeout),
                attempted
            )
        } catch {
            throw SharedDeviceError(error, attempted: attempted)
        }
    }

    private static func message(
        _ method: BrokerProtocol.Method,
        _ fields: BrokerProtocol.Fields?
    ) throws(DBusError) -> DBusMessage {
        try DBusMessage.methodCall(
            destination: BrokerProtocol.busName,
            path: BrokerProtocol.path,
            interface: BrokerProtocol.interface,
            member: method.rawValue,
            arguments: fields.map { [.fields($0)] } ?? []
        )
    }

    private static func answer(_ values: [DBusValue], _ attempted: String) throws(DBusError) -> BrokerProtocol.Fields {
        guard let fields = values.first?.fieldsValue else {
            throw DBusError(
                .malformed,
                name: BrokerProtocol.errorPrefix + SharedDeviceError.Code.brokerFailed.description,
                message: "the broker's response is not a dictionary",
                attempted: attempted
            )
        }
        return fields
    }
}
