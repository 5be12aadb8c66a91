import DBus
import FoundationEssentials
import Identity
import NotifyCenterTestKit
import SharedDevice
import Synchronization
import TestProviders
import Testing

@Suite("A configuration change that keeps the provider")
struct ChangedSettingsTests {
    /// Rewrites the configuration, and waits until the process has read it.
    private func change(_ device: IdentityDevice, _ fault: String, _ keys: String) async throws {
        let faulty = try await FaultyProvider.shared.value
        try device.configure(issuer: faulty.issuer(fault), trustAnchors: faulty.trustAnchors, more: keys)
        try await eventually("the change") { device.process.errorText.contains("the provider is the same") }
    }

    @Test("a sign-in in flight continues without another request for the provider's keys")
    func signIn() async throws {
        let fault = "none.changed-settings"
        let device = try await IdentityDevice(fault: fault)
        let test = try await FaultyProvider.shared.value.client(fault)
        _ = try await device.signIn(test.browse)
        let requests = try await test.page("key-requests")
        let begun = try await device.provider.begin(SignInStart(.browser, redirect: IdentityDevice.redirect))
        guard case .browser(let address) = begun.prompt else { throw NoAddress() }
        try await change(device, fault, #", "remoteCheckInterval": 60, "offlineGrace": 600"#)
        let signIn = try await device.provider.complete(begun.handle, query: test.browse(address))
        #expect(signIn.account.username == "ada@example.com")
        #expect(try await test.page("key-requests") == requests)
    }

    @Test("a logout token that was accepted is not accepted again")
    func logoutToken() async throws {
        let fault = "backchannel-none.changed-settings"
        let device = try await LogoutDevice(fault: fault)
        let token = try await FaultyProvider.shared.value.client(fault).page("logout-token")
        #expect(try await device.post("logout_token=\(token)").hasPrefix("HTTP/1.1 200"))
        let address = #", "backChannelLogout": "127.0.0.1:\#(device.port)""#
        try await change(device.device, fault, address + #", "offlineGrace": 600"#)
        #expect(try await device.post("logout_token=\(token)").hasPrefix("HTTP/1.1 400"))
        #expect(device.events.withLock { $0.count } == 1)
    }
}
