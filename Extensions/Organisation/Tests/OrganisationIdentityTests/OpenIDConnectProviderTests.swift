import Basics
import DBus
import FoundationEssentials
import HTTPClient
import Identity
import NotifyCenterTestKit
import OpenIDConnect
import SharedDevice
import Synchronization
import TestProviders
import Testing

@testable import OrganisationIdentity

/// A clock that only the test advances. A waiting task checks it every 5 ms.
final class HeldClock: Sendable {
    private let passed = Locked(Duration.zero)
    private let begun = Locked<[Duration]>([])
    private let start = ContinuousClock.now

    /// The duration of each wait that has begun.
    var waited: [Duration] { begun.withLock { $0 } }

    /// The number of waits that have begun.
    var waits: Int { waited.count }

    func advance(by duration: Duration) { passed.withLock { $0 += duration } }

    var clock: OpenIDConnectClient.Clock {
        OpenIDConnectClient.Clock(
            now: { [self] in start + passed.withLock { $0 } },
            wait: { [self] duration in
                let end = passed.withLock { $0 } + duration
                begun.withLock { $0.append(duration) }
                while passed.withLock({ $0 < end }) { try await Task.sleep(for: .milliseconds(5)) }
            }
        )
    }
}

/// The provider's log after a whole sign-in has ended there.
let allEnded = "end-session\nrevoke refresh_token\nrevoke access_token"

@Suite("The organisation's provider")
struct OpenIDConnectProviderTests {
    let redirect = "http://127.0.0.1:8976/callback"

    /// A provider with a fault, and a browser.
    func make(
        _ fault: String,
        _ settings: OpenIDConnectProvider.Settings = .init(),
        clock: OpenIDConnectClient.Clock = .init()
    ) async throws -> (OpenIDConnectProvider, TestClient) {
        let test = try await FaultyProvider.shared.value.client(fault)
        let shared = try await FaultyProvider.shared.value
        let client = OpenIDConnectClient(
            issuer: test.client.issuer,
            credentials: ClientCredentials(identifier: "device-7", secret: Secret("s&cret +%/")),
            http: HTTPClient(trustAnchors: shared.trustAnchors, patience: 30),
            clock: clock
        )
        return (OpenIDConnectProvider(client, settings: settings, clock: clock), test)
    }

    func signIn(
        _ provider: OpenIDConnectProvider,
        _ test: TestClient,
        hint: String? = nil,
        only: ProviderRecord.Person? = nil
    ) async throws -> ProviderSignIn {
        let start = SignInStart(.browser, redirect: redirect, loginHint: hint, only: only)
        let begun = try await provider.begin(start)
        guard case .browser(let address) = begun.prompt else { throw NoAddress() }
        #expect(begun.lifetime == .seconds(600) && begun.handle.utf8.count == 43)
        return try await provider.complete(begun.handle, query: test.browse(address))
    }

    @Test("Ada signs in by browser and gets her account, name, record and token")
    func browser() async throws {
        let (provider, test) = try await make("none")
        let signIn = try await signIn(provider, test)
        #expect(signIn.account.username == "ada@example.com")
        #expect(signIn.record.person.issuer == test.client.issuer.text && signIn.record.person.subject == "ada")
        #expect(signIn.record.session == "session-1")
        #expect(signIn.token.scopes == ["openid", "profile"])
        #expect(abs(signIn.token.expiresAt.timeIntervalSinceNow - 3600) < 60)
        #expect(!"\(signIn.record)".contains("ey") && !String(reflecting: signIn).contains(signIn.token.value))
        guard case .renewed(let token, let record?) = await provider.renew(signIn.record, scopes: [], mayBeUsed: false)
        else {
            Issue.record("not renewed")
            return
        }
        #expect(token.value != signIn.token.value && record.person == signIn.record.person)
        // The first token is used up.
        guard case .sessionOver = await provider.renew(signIn.record, scopes: [], mayBeUsed: false) else {
            Issue.record("a used token was taken")
            return
        }
        // After a possible reuse of our own, only the person can authenticate.
        guard case .reauthenticationNeeded = await provider.renew(signIn.record, scopes: [], mayBeUsed: true) else {
            Issue.record("our own reuse ended the session")
            return
        }
    }

    @Test("missing names come from userinfo; claims about another person are rejected")
    func names() async throws {
        let (provider, test) = try await make("names-elsewhere")
        let signIn = try await signIn(provider, test)
        #expect(signIn.account.username == "ada")
        let (wrong, other) = try await make("names-elsewhere-invalid-sub")
        let error = await #expect(throws: IdentityError.self) { try await self.signIn(wrong, other) }
        #expect(error?.code == .authenticationFailed)
    }

    @Test("the account does not depend on whether the userinfo endpoint responds")
    func answersAtTimes() async throws {
        let (provider, test) = try await make("names-elsewhere-at-times")
        let (answered, unanswered) = (try await signIn(provider, test), try await signIn(provider, test))
        #expect(answered.account == unanswered.account)
    }

    @Test("reauthentication rejects another person and revokes that person's tokens")
    func anotherPerson() async throws {
        let (provider, test) = try await make("again")
        let ada = try await signIn(provider, test)
        let again = try await signIn(provider, test, only: ada.record.person)
        #expect(again.account == ada.account)
        let error = await #expect(throws: IdentityError.self) {
            try await self.signIn(provider, test, hint: "grace", only: ada.record.person)
        }
        #expect(error?.code == .authenticationFailed)
        #expect(error?.description.contains("current_account_mismatch") == true)
        try await eventually("the revocation of Grace's tokens") {
            try await test.page("ended") == allEnded
        }
    }

    /// Renews with a wall clock that is off by this many seconds.
    private func renew(_ record: ProviderRecord, _ fault: String, offset: Double) async throws -> RenewalOutcome {
        let (provider, _) = try await make(fault, clock: .init(date: { Date() + offset }))
        return await provider.renew(record, scopes: [], mayBeUsed: false)
    }

    @Test(
        "a wrong clock does not end the sign-in; ID tokens with wrong times are dropped",
        arguments: [(-1.0, "none.slow"), (1.0, "none.fast")]
    )
    func wrongClock(direction: Double, fault: String) async throws {
        let (provider, test) = try await make(fault)
        let signIn = try await signIn(provider, test)
        var (record, identity) = (signIn.record, try #require(signIn.token.identity))
        // After the clock is corrected, the ID token is accepted again.
        for (offset, isTaken) in [(45.0, true), (7200, false), (7200, false), (0, true)] {
            let outcome = try await renew(record, fault, offset: offset * direction)
            guard case .renewed(let token, let next?) = outcome else {
                Issue.record("not renewed by a clock that is \(offset * direction) s off: \(outcome)")
                return
            }
            #expect((token.identity != identity) == isTaken, "\(offset * direction)")
            (record, identity) = (next, try #require(token.identity))
        }
        #expect(try await test.page("ended").isEmpty)
    }

    @Test(
        "even with a wrong clock, another person's tokens are revoked",
        arguments: [(-7200.0, "refresh-token-invalid-sub.slow"), (7200, "refresh-token-invalid-sub.fast")]
    )
    func anotherPersonByWrongClock(offset: Double, fault: String) async throws {
        let (provider, test) = try await make(fault)
        let signIn = try await signIn(provider, test)
        guard case .reauthenticationNeeded = try await renew(signIn.record, fault, offset: offset) else {
            Issue.record("the other one's tokens were taken")
            return
        }
        try await eventually("the revocation") {
            try await test.page("ended") == "revoke refresh_token\nrevoke access_token"
        }
    }

    @Test("a handle works once and cannot be guessed; other redirects are refused")
    func handles() async throws {
        let (provider, test) = try await make("none")
        let begun = try await provider.begin(SignInStart(.browser, redirect: redirect))
        guard case .browser(let address) = begun.prompt else { throw NoAddress() }
        let query = try await test.browse(address)
        _ = try await provider.complete(begun.handle, query: query)
        for handle in [begun.handle, "", "a"] {
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
        let clock = HeldClock()
        let (provider, _) = try await make("none", clock: clock.clock)
        let start = SignInStart(.browser, redirect: redirect)
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
        let clock = HeldClock()
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
        let clock = HeldClock()
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
        let clock = HeldClock()
        let (provider, test) = try await make("device-alone", clock: clock.clock)
        _ = try await provider.begin(SignInStart(.deviceCode))
        // The provider responds with pending, then with tokens; then the outcome waits.
        for wait in 1...3 {
            try await eventually("wait \(wait)") { clock.waits == wait }
            #expect(try await test.page("ended").isEmpty)
            clock.advance(by: .seconds(wait < 3 ? 5 : 31))
        }
        try await eventually("revocation") {
            try await test.page("ended") == allEnded
        }
    }
}
