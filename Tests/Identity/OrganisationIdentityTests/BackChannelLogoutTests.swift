import DBusTransport
import FoundationEssentials
import HTTPClient
import Identity
import OpenIDConnect
import StrictJSON
import Synchronization
import TestProviders
import Testing

@testable import OrganisationIdentity

@Suite("Logout tokens of the provider")
struct BackChannelLogoutTests {
    private func request(_ token: String) -> ReceivedRequest {
        ReceivedRequest(
            method: "POST",
            path: "/logout",
            fields: ["content-type": FormFields.contentType],
            body: Array("logout_token=\(token)".utf8)
        )
    }

    @Test("a logout is reported with the time at which its token was issued")
    func time() async throws {
        let test = try await FaultyProvider.shared.value.client("backchannel-issued-90-s-ago")
        let events = Locked<[ProviderEvent]>([])
        let logout = BackChannelLogout(test.client) { event in events.withLock { $0.append(event) } }
        let asked = Date()
        #expect(await logout.answer(request(try await test.page("logout-token"))).status == 200)
        let date = try #require(events.withLock { $0.first?.date })
        // The provider's clock counts whole seconds.
        #expect((asked.addingTimeInterval(-91)...Date().addingTimeInterval(-90)).contains(date), "\(date)")
    }
}
