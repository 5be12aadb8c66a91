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
    @Test("Ada signs in, her record renews, and after the end neither token is valid")
    func whole() async throws {
        let glewlwyd = try await Glewlwyd()
        let client = glewlwyd.client().client
        let provider = OpenIDConnectProvider(client, settings: .init(scopes: ["openid"]))
        let start = SignInStart(.browser, redirect: "http://127.0.0.1:8976/callback", loginHint: "ada")
        let begun = try await provider.begin(start)
        guard case .browser(let address) = begun.prompt else { throw NoAddress() }
        let answer = try await glewlwyd.run("browse " + address)
        let signIn = try await provider.complete(begun.handle, query: String(answer.drop { $0 != "?" }.dropFirst()))
        #expect(signIn.account.username == "ada@example.com" && signIn.account.displayName == "Ada")
        guard case .renewed(let token, let record?) = await provider.renew(signIn.record, scopes: [], mayBeUsed: false)
        else {
            Issue.record("not renewed")
            return
        }
        _ = try await client.userInfo(token.value, of: record.person.subject)
        try await provider.end(record)
        await #expect(throws: SignInError.self) { try await client.userInfo(token.value, of: nil) }
        guard case .sessionOver = await provider.renew(record, scopes: [], mayBeUsed: false) else {
            Issue.record("the session goes on")
            return
        }
    }

    @Test("a revocation that glewlwyd refuses is final")
    func refused() async throws {
        let glewlwyd = try await Glewlwyd()
        let provider = OpenIDConnectProvider(glewlwyd.client().client, settings: .init(scopes: ["openid"]))
        let begun = try await provider.begin(SignInStart(.browser, redirect: "http://127.0.0.1:8976/callback"))
        guard case .browser(let address) = begun.prompt else { throw NoAddress() }
        let answer = try await glewlwyd.run("browse " + address)
        let signIn = try await provider.complete(begun.handle, query: String(answer.drop { $0 != "?" }.dropFirst()))
        let stranger = OpenIDConnectProvider(glewlwyd.client(secret: "wrong").client)
        let error = await #expect(throws: IdentityError.self) { try await stranger.end(signIn.record) }
        #expect(error?.code == .providerMisconfigured, "\(String(describing: error))")
    }
}
