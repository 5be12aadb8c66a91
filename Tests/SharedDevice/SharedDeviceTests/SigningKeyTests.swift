import Basics
import Cryptography
import DBus
import Foundation
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Testing

@Suite("Tokens that services can verify")
struct SigningKeyTests {
    @Test("the keys on the bus and in the file verify tokens, also after a restart")
    func token() async throws {
        let device = try await DeviceOnPrivateBus(starts: false)
        let file = device.directory.path + "/keys.json"
        device.brokerArguments = ["--keys", file]
        try await device.startBroker()
        let app = device.application()
        let token = try await app.signIn("ada").accessToken
        let connection = try DBusConnection.open(device.bus.bus)
        for isStartedAnew in [false, true] {
            if isStartedAnew { try await device.restartBroker() }
            let property: [DBusValue] = [.string(BrokerProtocol.interface), .string("SigningKeys")]
            let answer = try await connection.callBroker("org.freedesktop.DBus.Properties", "Get", property)
            guard case .variant(let value)? = answer.first, let published = value.stringValue else {
                throw DeviceOnPrivateBus.Unexpected(description: "\(answer)")
            }
            #expect(try String(contentsOfFile: file, encoding: .utf8) == published + "\n")
            let verified = try JSONWebKeySet(parsing: Array(published.utf8)).verify(CompactSignature(parsing: token))
            #expect(verified.claims["sub"]?.string == (try await app.getCurrentAccount().current?.identifier))
            #expect(verified.claims["scope"]?.string == "orders.read")
        }
    }
}
