import DBus
import DeviceConfiguration
import Foundation
import Identity
import SharedDevice
import Testing

@testable import SharedDeviceBroker

@Suite("The provider's ID token")
struct IdentityTokenTests {
    private let device = VirtualDevice()
    private let prompt: VirtualDevice.App

    init() throws {
        try device.useOrganisation()
        let names = ["till": ["openid", "profile", "orders"], "clock": ["openid", "orders"], "oven": ["orders"]]
        device.provider.identity = IdentityToken(text: "Ada", granted: ["openid", "profile", "offline_access"])
        prompt = device.app("org.example.prompt")
        device.feed(
            .manifests(
                names.map { name, scopes in
                    var rights = TokenRights()
                    rights.scopes = Set(scopes)
                    let identity = AppManifest.Identity(executable: "/usr/bin/app")
                    return AppManifest(identifier: "org.example.\(name)", identity: identity, tokens: rights)
                }
            )
        )
    }

    private func idToken(of app: VirtualDevice.App, _ scopes: Set<String> = ["orders"]) throws -> String? {
        let fields = try device.ask(app, device.acquireToken(for: "ada", scopes))
        #expect(fields["token"]?.fieldsValue?["value"]?.stringValue?.hasPrefix("access") == true)
        return fields["token"]?.fieldsValue?["idToken"]?.stringValue
    }

    @Test("only apps with manifest rights to all of its claims get the ID token")
    func rights() throws {
        try device.signInAtProvider("ada", by: prompt)
        #expect(try idToken(of: device.app("org.example.till")) == "Ada")
        #expect(try idToken(of: device.app("org.example.clock")) == nil)
        #expect(try idToken(of: device.app("org.example.oven")) == nil)
    }

    @Test("a renewal replaces the ID token, and it ends with the session")
    func changes() throws {
        let till = device.app("org.example.till")
        try device.signInAtProvider("ada", by: prompt)
        device.provider.identity = IdentityToken(text: "Ada again", granted: ["openid"])
        #expect(try idToken(of: till) == "Ada again")
        device.provider.identity = nil
        #expect(try idToken(of: till, ["profile"]) == "Ada again")
        try device.signOut(by: till)
        try device.signInAtProvider("ada", by: prompt)
        #expect(try idToken(of: till) == nil)
    }

    @Test("after a restart the first renewal brings the ID token back")
    func restart() throws {
        let till = device.app("org.example.till")
        try device.signInAtProvider("ada", by: prompt)
        let manifests = device.state.manifests
        device.restart()
        device.feed(.manifests(manifests))
        device.reconnect(till)
        #expect(try idToken(of: till) == "Ada")
    }
}
