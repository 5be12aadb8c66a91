import Basics
import DBus
import FoundationEssentials
import HTTPClient
import Identity
import NotifyCenterTestKit
import OpenIDConnect
import SharedDevice
import TestProviders
import Testing

@testable import OrganisationIdentity

/// The provider's log after a whole sign-in has ended there, and after only its tokens have.
let allEnded = "end-session\n" + tokensEnded
let tokensEnded = "revoke refresh_token\nrevoke access_token"

@Suite("The organisation's provider")
struct OpenIDConnectProviderTests {
    /// A provider with a fault, and a browser.
    func make(
        _ fault: String,
        clock: OpenIDConnectClient.Clock = .init()
    ) async throws -> (OpenIDConnectProvider, TestClient) {
        let client = try await FaultyProvider.client(fault, clock: clock).client
        return (OpenIDConnectProvider(client, clock: clock), try await FaultyProvider.client(fault))
    }

    /// A sign-in that waits for the query of its redirect.
    func begin(_ provider: OpenIDConnectProvider, _ test: TestClient) async throws -> (handle: String, query: String) {
        let begun = try await provider.begin(SignInStart(.browser, redirect: testRedirect))
        guard case .browser(let address) = begun.prompt else { throw NoAddress() }
        #expect(begun.lifetime == .seconds(600) && begun.handle.utf8.count == 43)
        return (begun.handle, try await test.browse(address))
    }

    @Test("Ada signs in by browser and gets her account, name, record and token")
    func browser() async throws {
        let (provider, test) = try await make("none")
        let signIn = try await provider.signIn(browse: test.browse)
        #expect(signIn.account.username == "ada@example.com")
        #expect(signIn.record.person == ProviderRecord.Person(issuer: test.client.issuer.text, subject: "ada"))
        #expect(signIn.record.session == "session-1")
        #expect(signIn.token.scopes == ["openid", "profile"])
        #expect(abs(signIn.token.expiresAt.timeIntervalSinceNow - 3600) < 60)
        #expect(!"\(signIn.record)".contains("ey") && !String(reflecting: signIn).contains(signIn.token.value))
        let (token, record) = try await provider.renewed(signIn.record)
        #expect(token.value != signIn.token.value && record.person == signIn.record.person)
        // The first token is used up. After a possible reuse of our own, only the person can authenticate.
        #expect(await provider.renew(signIn.record).kind == .sessionOver)
        #expect(await provider.renew(signIn.record, mayBeUsed: true).kind == .reauthenticationNeeded)
    }

    @Test("missing names come from userinfo; the account does not depend on its responses")
    func names() async throws {
        let (provider, test) = try await make("names-elsewhere")
        #expect(try await provider.signIn(browse: test.browse).account.username == "ada")
        let (wrong, other) = try await make("names-elsewhere-invalid-sub")
        let error = await #expect(throws: IdentityError.self) { try await wrong.signIn(browse: other.browse) }
        #expect(error?.code == .authenticationFailed)
        let (unsteady, browser) = try await make("names-elsewhere-at-times")
        let answered = try await unsteady.signIn(browse: browser.browse).account
        #expect(try await unsteady.signIn(browse: browser.browse).account == answered)
    }

    @Test("reauthentication rejects another person and revokes that person's tokens")
    func anotherPerson() async throws {
        let (provider, test) = try await make("again")
        let ada = try await provider.signIn(browse: test.browse)
        let again = try await provider.signIn(only: ada.record.person, browse: test.browse)
        #expect(again.account == ada.account)
        let error = await #expect(throws: IdentityError.self) {
            try await provider.signIn(hint: "grace", only: ada.record.person, browse: test.browse)
        }
        #expect(error?.code == .authenticationFailed)
        #expect(error?.description.contains("current_account_mismatch") == true)
        try await eventually("the revocation of Grace's tokens") { try await test.page("ended") == allEnded }
    }

    /// Renews with a wall clock that is off by this many seconds.
    func renew(_ record: ProviderRecord, _ fault: String, offset: Double) async throws -> RenewalOutcome {
        let (provider, _) = try await make(fault, clock: .init(date: { Date() + offset }))
        return await provider.renew(record)
    }

    @Test(
        "a wrong clock does not end the sign-in; ID tokens with wrong times are dropped",
        arguments: [(-1.0, "none.slow"), (1.0, "none.fast")]
    )
    func wrongClock(direction: Double, fault: String) async throws {
        let (provider, test) = try await make(fault)
        let signIn = try await provider.signIn(browse: test.browse)
        var (record, identity) = (signIn.record, try #require(signIn.token.identity))
        // After the clock is corrected, the ID token is accepted again.
        for (offset, isTaken) in [(45.0, true), (7200, false), (7200, false), (0, true)] {
            let outcome = try await renew(record, fault, offset: offset * direction)
            guard case .renewed(let token, let next?) = outcome else { throw NotRenewed(description: "\(outcome)") }
            #expect((token.identity != identity) == isTaken, "\(offset * direction)")
            (record, identity) = (next, try #require(token.identity))
        }
        #expect(try await test.page("ended").isEmpty)
    }

    @Test("a handle works once and cannot be guessed; other redirects are refused")
    func handles() async throws {
        let (provider, test) = try await make("none")
        let (handle, query) = try await begin(provider, test)
        _ = try await provider.complete(handle, query: query)
        for handle in [handle, "", "a"] {
            let error = await #expect(throws: IdentityError.self) { try await provider.complete(handle, query: query) }
            #expect(error?.code == .loginExpired)
            await #expect(throws: IdentityError.self) { try await provider.poll(handle) }
        }
        for redirect in [
            nil, "http://localhost:80/callback", "https://127.0.0.1:80/callback", "http://127.0.0.1:/callback",
            "http://127.0.0.1:80/callback?a", "http://127.0.0.1:0/callback", "http://127.0.0.1:80@x/callback",
            "http://127.0.0.1:70000/callback", "http://127.0.0.1:/callback/callback",
        ] {
            let error = await #expect(throws: IdentityError.self) {
                try await provider.begin(SignInStart(.browser, redirect: redirect))
            }
            #expect(error?.code == .providerMisconfigured, "\(redirect ?? "-")")
        }
    }

    @Test("at most eight sign-ins are pending; cancelled and expired ones make room")
    func capacity() async throws {
        let clock = TestClock(holds: true)
        let (provider, _) = try await make("none", clock: clock.clock)
        let start = SignInStart(.browser, redirect: testRedirect)
        var handles: [String] = []
        for _ in 0..<8 { handles.append(try await provider.begin(start).handle) }
        let error = await #expect(throws: IdentityError.self) { try await provider.begin(start) }
        #expect(error?.code == .busy)
        await provider.cancel(handles[0])
        _ = try await provider.begin(start)
        await #expect(throws: IdentityError.self) { try await provider.begin(start) }
        clock.advance(by: .seconds(601))
        _ = try await provider.begin(start)
        provider.cancelAll()
        for _ in 0..<8 { _ = try await provider.begin(start) }
        let late = await #expect(throws: IdentityError.self) { try await provider.complete(handles[1], query: "") }
        #expect(late?.code == .loginExpired)
    }

    @Test("polls by device code do not increase the requests to the provider")
    func deviceCode() async throws {
        let clock = TestClock(holds: true)
        let (provider, _) = try await make("device-patience", clock: clock.clock)
        let begun = try await provider.begin(SignInStart(.deviceCode))
        guard case .deviceCode(let code, let address, let complete?) = begun.prompt else { throw NoAddress() }
        #expect(code == "WDJB-MJHT" && complete.hasPrefix(address) && begun.lifetime == .seconds(900))
        // 10 s after `slow_down`.
        for (index, pause) in [5, 5, 10, 10].enumerated() {
            try await eventually("wait \(index + 1)") { clock.waits == index + 1 }
            #expect(clock.waited.last == .seconds(pause))
            for _ in 0..<50 { #expect(try await provider.poll(begun.handle) == nil) }
            #expect(clock.waits == index + 1)
            clock.advance(by: .seconds(pause))
        }
        var signIn: ProviderSignIn?
        try await eventually("the sign-in") {
            signIn = try await provider.poll(begun.handle)
            return signIn != nil
        }
        #expect(signIn?.account.username == "ada@example.com")
        // The outcome is returned once.
        await #expect(throws: IdentityError.self) { try await provider.poll(begun.handle) }
    }

    @Test("a sign-in by device code ends 30 s after the caller's last poll")
    func nobodyAsks() async throws {
        let clock = TestClock(holds: true)
        let (provider, _) = try await make("device-forever", clock: clock.clock)
        let start = SignInStart(.deviceCode)
        var handles: [String] = []
        for _ in 0..<8 { handles.append(try await provider.begin(start).handle) }
        await #expect(throws: IdentityError.self) { try await provider.begin(start) }
        // Each grant polls every 5 s, for the last time after 30 s.
        for asked in 1...7 {
            try await eventually("wait \(asked) of all") { clock.waits == 8 * asked }
            #expect(try await provider.poll(handles[0]) == nil)
            await #expect(throws: IdentityError.self) { try await provider.begin(start) }
            clock.advance(by: .seconds(5))
        }
        var begun = 0
        try await eventually("room for seven") {
            if (try? await provider.begin(start)) != nil { begun += 1 }
            return begun == 7
        }
        await #expect(throws: IdentityError.self) { try await provider.begin(start) }
        // The grant that is polled goes on; a late poll gets an error.
        #expect(try await provider.poll(handles[0]) == nil)
        let error = await #expect(throws: IdentityError.self) { try await provider.poll(handles[1]) }
        #expect(error?.code == .loginExpired)
    }

    @Test("tokens of an uncollected sign-in are revoked")
    func nobodyFetches() async throws {
        let clock = TestClock(holds: true)
        let (provider, test) = try await make("device-alone", clock: clock.clock)
        _ = try await provider.begin(SignInStart(.deviceCode))
        // The provider responds with pending, then with tokens; then the outcome waits.
        for wait in 1...3 {
            try await eventually("wait \(wait)") { clock.waits == wait }
            #expect(try await test.page("ended").isEmpty)
            clock.advance(by: .seconds(wait < 3 ? 5 : 31))
        }
        try await eventually("revocation") { try await test.page("ended") == allEnded }
    }
}
