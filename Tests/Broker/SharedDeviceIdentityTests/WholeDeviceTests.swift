import DBusTransport
import FoundationEssentials
import NotifyCenterTestKit
import SharedDevice
import TestProviders
import Testing

@Suite("Broker and provider's process together")
struct WholeDeviceTests {
    @Test("Ada signs in by her provider's page, signs out here, and the provider is told: session first, then tokens")
    func signOut() async throws {
        let device = try await WholeDevice(fault: "whole-sign-out")
        let test = try await FaultyProvider.shared.value.client("whole-sign-out")
        try await device.signIn(test)
        let ada = try #require(try await device.account())
        #expect(ada.username == "ada@example.com")
        _ = try await device.call(.signOut, ["accountIdentifier": .string(ada.identifier)])
        #expect(try await device.account() == nil)
        try await eventually("the provider's being told") {
            try await test.page("ended") == "end-session\nrevoke refresh_token\nrevoke access_token"
        }
    }

    @Test("Ada is signed out when her provider ends the session, by its logout token")
    func fromAfar() async throws {
        let device = try await WholeDevice(fault: "whole-from-afar")
        let test = try await FaultyProvider.shared.value.client("whole-from-afar")
        try await device.signIn(test)
        #expect(try await device.account() != nil)
        let body = "logout_token=\(try await test.page("logout-token"))"
        let port = device.port
        let request =
            "POST / HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: \(body.utf8.count)\r\n\r\n"
            + body
        let answer = try await aside { try exchange(request, port: port) }
        #expect(answer.hasPrefix("HTTP/1.1 200"), "\(answer)")
        #expect(try await device.account() == nil)
    }
}
