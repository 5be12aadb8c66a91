import DBus
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice

/// A program without the library, as the broker sees it: a separate connection that calls the D-Bus interface.
struct OtherProgram {
    static let identifier = "org.example.one"

    let broker: BrokerAdministration

    init(_ device: DeviceOnPrivateBus) throws { broker = try BrokerAdministration(bus: device.bus.bus) }

    @discardableResult
    func call(
        _ method: BrokerProtocol.Method,
        _ fields: BrokerProtocol.Fields = [:]
    ) async throws -> BrokerProtocol.Fields {
        try await broker.call(method, fields.merging(["application": .string(Self.identifier)]) { $1 })
    }

    func ask() async throws -> SessionAnswer { try SessionAnswer(try await call(.getCurrentAccount)) }

    /// Reports a finished cleanup that began under this mark.
    @discardableResult
    func finish(_ session: UInt64, mark: UInt64 = 0) async throws -> BrokerProtocol.Fields {
        let fields: BrokerProtocol.Fields = [
            "session": .uint64(session), "mark": .uint64(mark), "progress": .string("finished"),
        ]
        return try await call(.reportCleanup, fields)
    }

    /// Returns the program's progress in the cleanup after the session; `nil` if the program is not in the round.
    func progress(_ session: DBusValue) async throws -> CleanupReport.Progress? {
        let round = try CleanupReport(try await call(.getRound, ["session": session])["round"])
        return round.apps.first { $0.identifier.hasPrefix(Self.identifier) }?.progress
    }
}
