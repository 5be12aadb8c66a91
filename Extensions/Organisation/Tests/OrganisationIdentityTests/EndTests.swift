import Basics
import DBus
import FoundationEssentials
import Identity
@_spi(Extensions) import NotifyCenterTestKit
import OpenIDConnect
import Synchronization
import TestProviders
import Testing

@testable import OrganisationIdentity

extension OpenIDConnectProviderTests {
    @Test("the session ends first, then the refresh token, then all access tokens")
    func end() async throws {
        let (provider, test) = try await make("end")
        let signIn = try await signIn(provider, test)
        guard case .renewed(_, let record?) = await provider.renew(signIn.record, scopes: [], mayBeUsed: false) else {
            Issue.record("not renewed")
            return
        }
        try await provider.end(record)
        #expect(
            try await test.page("ended").split(separator: "\n") == [
                "end-session", "revoke refresh_token", "revoke access_token", "revoke access_token",
            ]
        )
        guard case .sessionOver = await provider.renew(record, scopes: [], mayBeUsed: false) else {
            Issue.record("a revoked token was taken")
            return
        }
    }

    @Test("a refused revocation is final; an outage is retried")
    func refusedEnd() async throws {
        let (denied, other) = try await make("revoke-denied")
        let record = try await signIn(denied, other).record
        let refusal = await #expect(throws: IdentityError.self) { try await denied.end(record) }
        #expect(refusal?.code == .providerMisconfigured)
        let (away, test) = try await make("revoke-away")
        let second = try await signIn(away, test).record
        let outage = await #expect(throws: IdentityError.self) { try await away.end(second) }
        #expect(outage?.code == .providerUnavailable)
        try await away.end(second)
        #expect(try await test.page("ended").hasSuffix("revoke refresh_token\nrevoke access_token"))
    }

    @Test("a foreign or damaged record ends nothing")
    func foreignRecords() async throws {
        let (provider, test) = try await make("none")
        let record = try await signIn(provider, test).record
        let content = record.content.text
        let person = record.person
        let issuer = ProviderRecord.Person(issuer: "https://example.com", subject: "ada")
        for other in [
            ProviderRecord(person: issuer, session: nil, content: record.content),
            ProviderRecord(
                person: .init(issuer: person.issuer, subject: "grace"),
                session: nil,
                content: record.content
            ),
            ProviderRecord(person: person, session: nil, content: Secret("{")),
            ProviderRecord(
                person: person,
                session: nil,
                content: Secret(content + String(repeating: " ", count: 200_000))
            ),
        ] {
            guard case .reauthenticationNeeded = await provider.renew(other, scopes: [], mayBeUsed: false) else {
                Issue.record("used")
                return
            }
            let error = await #expect(throws: IdentityError.self) { try await provider.end(other) }
            #expect(error?.code == .providerMisconfigured)
        }
    }

    @Test(
        "an outage of the end_session_endpoint stops no revocation and is retried",
        arguments: ["end-session-cut", "end-session-503", "end-session-429"]
    )
    func endOfSessionAway(fault: String) async throws {
        let (provider, test) = try await make(fault)
        let record = try await signIn(provider, test).record
        let error = await #expect(throws: IdentityError.self) { try await provider.end(record) }
        #expect(error?.code == .providerUnavailable)
        #expect(try await test.page("ended") == "revoke refresh_token\nrevoke access_token")
        try await provider.end(record)
        #expect(try await test.page("ended").hasSuffix(allEnded))
    }

    @Test("a redirect and a cancelled task are not final")
    func notFinal() async throws {
        let (provider, test) = try await make("revoke-redirect")
        let record = try await signIn(provider, test).record
        let error = await #expect(throws: IdentityError.self) { try await provider.end(record) }
        #expect(error?.code == .providerUnavailable)
        let cancelled = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            try await provider.end(record)
        }
        let cancellation = await #expect(throws: IdentityError.self) { try await cancelled.value }
        #expect(cancellation?.code == .providerUnavailable)
        try await provider.end(record)
        #expect(try await test.page("ended").hasSuffix(allEnded))
    }

    @Test("an end takes 50 s at most; a later attempt ends the rest")
    func longEnd() async throws {
        let (provider, test) = try await make("none.long-end")
        var record = try await signIn(provider, test).record
        for _ in 0..<9 {
            guard case .renewed(_, let next?) = await provider.renew(record, scopes: [], mayBeUsed: false) else {
                Issue.record("not renewed")
                return
            }
            record = next
        }
        func ended() async throws -> Int { try await test.page("ended").split(separator: "\n").count }
        // Every read of the clock advances it by 6 s.
        let start = ContinuousClock.now
        let passed = Locked(Duration.zero)
        let clock = OpenIDConnectClient.Clock(now: {
            start
                + passed.withLock { passed in
                    passed += .seconds(6)
                    return passed
                }
        })
        let (slow, _) = try await make("none.long-end", clock: clock)
        let error = await #expect(throws: IdentityError.self) { try await slow.end(record) }
        #expect(error?.code == .providerUnavailable)
        let first = try await ended()
        #expect((1...8).contains(first), "\(first)")
        try await provider.end(record)
        // The session, the refresh token and ten access tokens.
        #expect(try await ended() == first + 12)
    }

    @Test(
        "tokens with a rejected ID token are revoked, and their session is ended",
        arguments: ["nonce-invalid.ended", "earlier-person.ended", "invalid-sig-es256.ended", "invalid-aud.ended"]
    )
    func refusedTokens(fault: String) async throws {
        let (provider, test) = try await make(fault)
        await #expect(throws: IdentityError.self) { try await self.signIn(provider, test) }
        try await eventually("the end of the tokens") { try await test.page("ended") == allEnded }
    }

    @Test("a rejected device code sign-in ends its session; a rejected refresh does not")
    func otherRefusedTokens() async throws {
        let clock = HeldClock()
        let (byCode, test) = try await make("nonce-invalid.device", clock: clock.clock)
        _ = try await byCode.begin(SignInStart(.deviceCode))
        for wait in 1...2 {
            try await eventually("wait \(wait)") { clock.waits == wait }
            clock.advance(by: .seconds(5))
        }
        try await eventually("the end of the tokens") { try await test.page("ended") == allEnded }

        let (provider, other) = try await make("refresh-token-invalid-sub.ended")
        let record = try await signIn(provider, other).record
        guard case .reauthenticationNeeded = await provider.renew(record, scopes: [], mayBeUsed: false) else {
            Issue.record("another person's tokens were taken")
            return
        }
        try await eventually("revocation") {
            try await other.page("ended") == "revoke refresh_token\nrevoke access_token"
        }
    }

    @Test("tokens of a rejected person are revoked after an outage")
    func refusedWhileAway() async throws {
        let clock = HeldClock()
        let (provider, test) = try await make("revoke-away.later", clock: clock.clock)
        let other = ProviderRecord.Person(issuer: test.client.issuer.text, subject: "nobody")
        await #expect(throws: IdentityError.self) { try await self.signIn(provider, test, only: other) }
        try await eventually("the first attempt") { clock.waited == [.seconds(5)] }
        clock.advance(by: .seconds(5))
        try await eventually("revocation") {
            try await test.page("ended").hasSuffix("revoke refresh_token\nrevoke access_token")
        }
        #expect(clock.waits == 1)
    }

    @Test("a caller that cancels during the check gets the outcome and ends it")
    func cancelledLate() async throws {
        try await withTaskExecutorPreference(OwnThread()) { try await judgeCancelledLate() }
    }

    private func judgeCancelledLate() async throws {
        let (provider, test) = try await make("exchange-after-2-s.cancelled")
        let begun = try await provider.begin(SignInStart(.browser, redirect: redirect))
        guard case .browser(let address) = begun.prompt else { throw NoAddress() }
        let query = try await test.browse(address)
        async let outcome = provider.complete(begun.handle, query: query)
        try await eventually("the answer is checked") { provider.pending.withLock { $0.isCompleting(begun.handle) } }
        await provider.cancel(begun.handle)
        try await provider.end(try await outcome.record)
        #expect(try await test.page("ended") == allEnded)
    }

    @Test("with keepsSession only the tokens are revoked")
    func tokensAlone() async throws {
        let (provider, test) = try await make("tokens-alone")
        let record = try await signIn(provider, test).record
        try await provider.end(record, keepsSession: true)
        #expect(try await test.page("ended") == "revoke refresh_token\nrevoke access_token")
    }

    @Test("a new refresh token that is too large is revoked, and the person signs in again")
    func tooLarge() async throws {
        let (provider, test) = try await make("large-refresh")
        let record = try await signIn(provider, test).record
        guard case .reauthenticationNeeded = await provider.renew(record, scopes: [], mayBeUsed: false) else {
            Issue.record("not the person's")
            return
        }
        try await eventually("revocation") {
            try await test.page("ended") == "revoke refresh_token\nrevoke access_token"
        }
    }
}
