import FoundationEssentials
import Glibc
import HTTPClient
import Identity
import NotifyCenterTestKit
import OpenIDConnect
import SharedDevice
import TestProviders
import Testing

@testable import OrganisationIdentity

@Suite(
    "Organisation provider with glewlwyd, an independent provider",
    .enabled(
        if: access(Glewlwyd.program, X_OK) == 0,
        "glewlwyd is not installed: apt-get install --no-install-recommends glewlwyd"
    )
)
struct GlewlwydProviderTests {
    @Test("Ada signs in, her record renews, and an ended or reused token is not valid")
    func whole() async throws {
        let glewlwyd = try await Glewlwyd()
        let client = glewlwyd.client().client
        let provider = OpenIDConnectProvider(client, settings: .init(scopes: ["openid"]))
        let signIn = try await provider.signIn(browse: glewlwyd.browse)
        #expect(signIn.account.username == "ada@example.com" && signIn.account.displayName == "Ada")
        let (token, record) = try await provider.renewed(signIn.record)
        _ = try await client.userInfo(token.value, of: record.person.subject)
        // A refused revocation is final, and the sign-in goes on.
        let stranger = OpenIDConnectProvider(glewlwyd.client(secret: "wrong").client)
        let error = await #expect(throws: IdentityError.self) { try await stranger.end(record) }
        #expect(error?.code == .providerMisconfigured, "\(String(describing: error))")
        try await provider.end(record)
        await #expect(throws: IdentityError.self) { try await client.userInfo(token.value, of: nil) }
        #expect(await provider.renew(record).kind == .sessionOver)
        // A reused token ends the session.
        let first = try await provider.signIn(browse: glewlwyd.browse).record
        let second = try await provider.renewed(first).record
        for record in [first, second] { #expect(await provider.renew(record).kind == .sessionOver) }
    }
}
