import Basics
import FoundationEssentials
import Glibc
import HTTPClient
import Identity
import NotifyCenterTestKit
import OpenIDConnect
import TestProviders
import Testing

@Suite(
    "OpenID Connect client with glewlwyd, an independent provider",
    .enabled(
        if: access(Glewlwyd.program, X_OK) == 0,
        "glewlwyd is not installed: apt-get install --no-install-recommends glewlwyd"
    )
)
struct GlewlwydTests {
    @Test("Ada signs in by browser and refreshes; a reused token ends her session")
    func browser() async throws {
        let glewlwyd = try await Glewlwyd()
        let test = glewlwyd.client()
        let signedIn = try await glewlwyd.signIn(test.client)
        #expect(signedIn.identity.claims["name"]?.string == "Ada")
        let token = try #require(signedIn.tokens.refreshToken)
        guard case .renewed(let tokens) = await test.client.refresh(token, of: signedIn.identity) else {
            Issue.record("not renewed")
            return
        }
        let next = try #require(tokens.refreshToken)
        #expect(!next.isEqual(to: token))
        let person = try await test.client.userInfo(tokens.accessToken.text, of: signedIn.identity.subject)
        #expect(person.subject == signedIn.identity.subject)
        guard case .sessionOver = await test.client.refresh(token, of: signedIn.identity) else {
            Issue.record("a used token was taken")
            return
        }
        guard case .sessionOver = await test.client.refresh(next, of: signedIn.identity) else {
            Issue.record("the reuse did not end the family")
            return
        }
    }

    @Test("a clock that is hours off prevents the sign-in; 45 s off do not")
    func wrongClock() async throws {
        let glewlwyd = try await Glewlwyd()
        func client(_ offset: Double) -> OpenIDConnectClient {
            glewlwyd.client(clock: .init(date: { Date() + offset })).client
        }
        // glewlwyd's ID tokens are valid for an hour.
        for offset in [-7200.0, 90_000] {
            let error = await #expect(throws: SignInError.self) { try await glewlwyd.signIn(client(offset)) }
            #expect(error?.code == .authenticationFailed, "\(offset)")
            let words = error?.description ?? ""
            #expect(words.contains("is from 20") && words.hasSuffix("set the clock, and sign in again"), "\(words)")
        }
        for offset in [-45.0, 45] {
            let signedIn = try await glewlwyd.signIn(client(offset))
            #expect(signedIn.identity.claims["name"]?.string == "Ada", "\(offset)")
        }
    }

    @Test("a wrong secret and an outage have different errors, and end no session")
    func failures() async throws {
        let glewlwyd = try await Glewlwyd()
        let test = glewlwyd.client()
        let signedIn = try await glewlwyd.signIn(test.client)
        let token = try #require(signedIn.tokens.refreshToken)
        // Signs in, because glewlwyd responds to a refresh with a wrong secret as to a used token: 400 with an empty
        // body.
        let refused = await #expect(throws: SignInError.self) {
            try await glewlwyd.signIn(glewlwyd.client(secret: "wrong").client)
        }
        #expect(refused?.description.hasSuffix("does not know this device's client ID or secret") == true)
        try glewlwyd.process.closeInput()
        try await eventually("the end of glewlwyd") { !glewlwyd.process.isRunning }
        guard case .unavailable(let error, _) = await test.client.refresh(token, of: signedIn.identity) else {
            Issue.record("an outage ended the session")
            return
        }
        #expect(
            error.code == .providerUnavailable
                && error.description.hasPrefix(glewlwyd.issuer.text + " cannot be reached")
        )
    }
}
