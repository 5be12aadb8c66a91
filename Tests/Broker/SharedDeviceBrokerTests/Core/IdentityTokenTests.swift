import DBus
import Identity
import Testing

@testable import SharedDeviceBroker

@Suite("The provider's ID token")
struct IdentityTokenTests {
    private let device = VirtualDevice()

    init() throws {
        try device.useOrganisation()
        device.use(
            .app("org.example.till", scopes: ["openid", "profile", "orders"]),
            .app("org.example.clock", scopes: ["openid", "orders"]),
            .app("org.example.oven", scopes: ["orders"])
        )
        device.provider.identity = IdentityToken(text: "Ada", granted: ["openid", "profile", "offline_access"])
        try device.signInAtProvider()
    }

    private func idToken(of app: VirtualDevice.App, _ scopes: Set<String> = ["orders"]) throws -> String? {
        let fields = try device.ask(app, device.acquireToken(for: "ada", scopes))
        #expect(fields["token"]?.fieldsValue?["value"]?.stringValue?.hasPrefix("access") == true)
        return fields["token"]?.fieldsValue?["idToken"]?.stringValue
    }

    @Test("only apps with manifest rights to all of its claims get the ID token")
    func rights() throws {
        let tokens = try ["till", "clock", "oven"].map { try idToken(of: device.app("org.example.\($0)")) }
        #expect(tokens == ["Ada", nil, nil])
    }

    @Test("a renewal replaces the ID token, and it ends with the session")
    func changes() throws {
        device.provider.identity = IdentityToken(text: "Ada again", granted: ["openid"])
        #expect(try idToken(of: device.till) == "Ada again")
        device.provider.identity = nil
        #expect(try idToken(of: device.till, ["profile"]) == "Ada again")
        try device.signOut(by: device.till)
        try device.signInAtProvider()
        #expect(try idToken(of: device.till) == nil)
    }

    @Test("after a restart the first renewal brings the ID token back")
    func restart() throws {
        device.restart()
        #expect(try idToken(of: device.till) == "Ada")
    }
}
