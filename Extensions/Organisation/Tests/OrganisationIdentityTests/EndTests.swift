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
    @Test("session, refresh token and access tokens end in this order; a refusal is final")
    func end() async throws {
        let (provider, test) = try await make("end")
        let signIn = try await provider.signIn(browse: test.browse)
        let record = try await provider.renewed(signIn.record).record
        try await provider.end(record)
        #expect(try await test.page("ended") == allEnded + "\nrevoke access_token")
        #expect(await provider.renew(record).kind == .sessionOver)
        let (refusing, last) = try await make("revoke-denied")
        let refused = try await refusing.signIn(browse: last.browse).record
        let refusal = await #expect(throws: IdentityError.self) { try await refusing.end(refused) }
        #expect(refusal?.code == .providerMisconfigured)
    }

    @Test("a foreign or damaged record ends nothing")
    func foreignRecords() async throws {
        let (provider, test) = try await make("none")
        let record = try await provider.signIn(browse: test.browse).record
        let (person, long) = (record.person, record.content.text + String(repeating: " ", count: 200_000))
        for (person, content) in [
            (.init(issuer: "https://example.com", subject: "ada"), record.content),
            (.init(issuer: person.issuer, subject: "grace"), record.content),
            (person, Secret("{")), (person, Secret(long)),
        ] as [(ProviderRecord.Person, Secret)] {
            let other = ProviderRecord(person: person, session: nil, content: content)
            #expect(await provider.renew(other).kind == .reauthenticationNeeded)
            let error = await #expect(throws: IdentityError.self) { try await provider.end(other) }
            #expect(error?.code == .providerMisconfigured)
        }
    }

    @Test(
        "an outage or redirect of an endpoint is retried, after all other requests",
        arguments: [
            ("end-session-cut", tokensEnded, allEnded), ("end-session-503", tokensEnded, allEnded),
            ("end-session-429", tokensEnded, allEnded), ("revoke-away", nil, tokensEnded),
            ("revoke-redirect", nil, allEnded),
        ] as [(String, String?, String)]
    )
    func retriedEnd(fault: String, first: String?, last: String) async throws {
        let (provider, test) = try await make(fault)
        let record = try await provider.signIn(browse: test.browse).record
        let error = await #expect(throws: IdentityError.self) { try await provider.end(record) }
        #expect(error?.code == .providerUnavailable)
        if let first { #expect(try await test.page("ended") == first) }
        try await provider.end(record)
        #expect(try await test.page("ended").hasSuffix(last))
    }

    @Test("an end takes 50 s at most; after it or a cancellation a later one ends the rest")
    func longEnd() async throws {
        let (provider, test) = try await make("none.long-end")
        var record = try await provider.signIn(browse: test.browse).record
        for _ in 0..<9 { record = try await provider.renewed(record).record }
        func ended() async throws -> Int { try await test.page("ended").split(separator: "\n").count }
        let cancelled = Task { [record] in
            withUnsafeCurrentTask { $0?.cancel() }
            try await provider.end(record)
        }
        let cancellation = await #expect(throws: IdentityError.self) { try await cancelled.value }
        #expect(cancellation?.code == .providerUnavailable)
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
        arguments: [
            "nonce-invalid.ended", "earlier-person.ended", "invalid-sig-es256.ended", "invalid-aud.ended",
            "nonce-invalid.device",
        ]
    )
    func refusedTokens(fault: String) async throws {
        let clock = TestClock(holds: true)
        let (provider, test) = try await make(fault, clock: fault.hasSuffix(".device") ? clock.clock : .init())
        if fault.hasSuffix(".device") {
            _ = try await provider.begin(SignInStart(.deviceCode))
            for wait in 1...2 {
                try await eventually("wait \(wait)") { clock.waits == wait }
                clock.advance(by: .seconds(5))
            }
        } else {
            await #expect(throws: IdentityError.self) { try await provider.signIn(browse: test.browse) }
        }
        try await eventually("the end of the tokens") { try await test.page("ended") == allEnded }
    }

    @Test(
        "the tokens of a rejected refresh are revoked, even with a wrong clock",
        arguments: [
            // Another person's tokens.
            ("refresh-token-invalid-sub.ended", 0), ("refresh-token-invalid-sub.slow", -7200),
            ("refresh-token-invalid-sub.fast", 7200),
            // A refresh token that is too large.
            ("large-refresh", 0),
        ] as [(String, Double)]
    )
    func refusedRefresh(fault: String, offset: Double) async throws {
        let (provider, test) = try await make(fault)
        let record = try await provider.signIn(browse: test.browse).record
        #expect(try await renew(record, fault, offset: offset).kind == .reauthenticationNeeded)
        try await eventually("revocation") { try await test.page("ended") == tokensEnded }
    }

    @Test("tokens of a rejected person are revoked after an outage")
    func refusedWhileAway() async throws {
        let clock = TestClock(holds: true)
        let (provider, test) = try await make("revoke-away.later", clock: clock.clock)
        let other = ProviderRecord.Person(issuer: test.client.issuer.text, subject: "nobody")
        await #expect(throws: IdentityError.self) { try await provider.signIn(only: other, browse: test.browse) }
        try await eventually("the first attempt") { clock.waited == [.seconds(5)] }
        clock.advance(by: .seconds(5))
        try await eventually("revocation") { try await test.page("ended").hasSuffix(tokensEnded) }
        #expect(clock.waits == 1)
    }

    @Test("a caller that cancels during the check gets the outcome and ends it")
    func cancelledLate() async throws {
        try await withTaskExecutorPreference(OwnThread()) { try await judgeCancelledLate() }
    }

    private func judgeCancelledLate() async throws {
        let (provider, test) = try await make("exchange-wait.cancelled")
        let (handle, query) = try await begin(provider, test)
        async let outcome = provider.complete(handle, query: query)
        try await eventually("the response is being checked") { provider.pending.withLock { $0.isCompleting(handle) } }
        await provider.cancel(handle)
        _ = try await test.page("go-on")
        try await provider.end(try await outcome.record)
        #expect(try await test.page("ended") == allEnded)
    }

    @Test("with keepsSession only the tokens are revoked")
    func tokensAlone() async throws {
        let (provider, test) = try await make("tokens-alone")
        let record = try await provider.signIn(browse: test.browse).record
        try await provider.end(record, keepsSession: true)
        #expect(try await test.page("ended") == tokensEnded)
    }
}
