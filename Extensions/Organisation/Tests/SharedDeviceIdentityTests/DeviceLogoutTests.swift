import DBus
import FoundationEssentials
import Identity
import NotifyCenterTestKit
import SharedDevice
import TestProviders
import Testing

@Suite("Back-channel logout")
struct DeviceLogoutTests {
    @Test("a logout token of the provider reaches the broker once")
    func ended() async throws {
        let fault = "backchannel-rpinitlogout"
        let device = try await LogoutDevice(fault: fault)
        let token = try await device.token()
        let answer = try await device.post(token)
        #expect(answer.hasPrefix("HTTP/1.1 200 OK\r\n") && answer.contains("Cache-Control: no-store\r\n"), "\(answer)")
        let issuer = try await FaultyProvider.shared.value.issuer(fault)
        let event = ["kind": "ended", "issuer": issuer, "subject": "ada", "session": "session-1"]
        #expect(device.events == [event])
        let again = try await device.post(token)
        #expect(again.hasPrefix("HTTP/1.1 400") && again.hasSuffix(#"{"error":"invalid_request"}"#), "\(again)")
        // Requests that are no logout.
        for (request, status) in [("GET / HTTP/1.1\r\n\r\n", 405), ("nonsense\r\n\r\n", 400)] {
            let answer = try await exchange(request, port: device.port)
            #expect(answer.hasPrefix("HTTP/1.1 \(status) "), "\(answer.prefix(80))")
        }
        #expect(device.events == [event])
        #expect(!device.log.contains(token.suffix(20)))
    }

    @Test("a refused logout is logged despite a flood of requests, and can be repeated")
    func later() async throws {
        let start = ContinuousClock.now
        let device = try await LogoutDevice(fault: "backchannel-sub-only")
        let token = try await device.token()
        for _ in 0..<100 { #expect(try await device.post("a").hasPrefix("HTTP/1.1 400")) }
        device.recorder.refuse(true)
        #expect(try await device.post(token).hasPrefix("HTTP/1.1 400"))
        try await eventually("it is in the log") { device.log.contains("the broker does not accept it") }
        device.recorder.refuse(false)
        #expect(try await device.post(token).hasPrefix("HTTP/1.1 200"))
        #expect(device.events.first?["session"] == nil && device.events.first?["subject"] == "ada")
        // Invalid requests have five lines a minute, and a sixth that counts those of the previous minute. The refusal
        // by the broker has its own line.
        let minutes = Int((ContinuousClock.now - start) / .seconds(60)) + 1
        let lines = device.log.components(separatedBy: "a logout from the provider is refused").count - 1
        #expect((2...6 * minutes + 1).contains(lines), "\(lines) lines")
    }

    @Test("a configuration change that keeps the provider keeps sign-ins and used tokens")
    func changedSettings() async throws {
        let logout = try await LogoutDevice(fault: "backchannel-none.changed-settings")
        let (device, token) = (logout.device, try await logout.token())
        _ = try await device.signIn()
        #expect(try await logout.post(token).hasPrefix("HTTP/1.1 200"))
        let requests = try await device.test.page("key-requests")
        let begun = try await device.provider.begin(SignInStart(.browser, redirect: testRedirect))
        guard case .browser(let address) = begun.prompt else { throw NoAddress() }
        let keys = #", "remoteCheckInterval": 60, "offlineGrace": 600"#
        try await logout.listen(at: "127.0.0.1:\(logout.port)", more: keys)
        try await eventually("the change") { logout.log.contains("the provider is the same") }
        // The sign-in in flight continues, without another request for the keys.
        let signIn = try await device.provider.complete(begun.handle, query: device.test.browse(address))
        #expect(signIn.account.username == "ada@example.com")
        #expect(try await device.test.page("key-requests") == requests)
        #expect(try await logout.post(token).hasPrefix("HTTP/1.1 400"))
        #expect(logout.events.count == 1)
    }
}
