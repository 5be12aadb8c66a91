import Basics
import Cryptography
import DBus
import FoundationEssentials
import HTTPClient
import Identity
import NotifyCenterTestKit
import Synchronization
import TestProviders
import Testing

@testable import OpenIDConnect

@Suite("Reading the provider's keys and metadata")
struct KeyReadingTests {
    private func client(_ fault: String, clock: TestClock) async throws -> TestClient {
        try await FaultyProvider.shared.value.client(fault, clock: clock)
    }

    private func refresh(_ test: TestClient, _ signedIn: OpenIDConnectClient.SignedIn) async throws -> RefreshOutcome {
        await test.client.refresh(try #require(signedIn.tokens.refreshToken), of: signedIn.identity)
    }

    @Test("a token that arrives during a read of the keys causes no second request")
    func shared() async throws {
        let clock = TestClock()
        let looks = Locked(0)
        let faulty = try await FaultyProvider.shared.value
        let watched = OpenIDConnectClient.Clock(now: {
            looks.withLock { $0 += 1 }
            return clock.now
        })
        let http = HTTPClient(trustAnchors: faulty.trustAnchors, patience: 30)
        let client = OpenIDConnectClient(
            issuer: try #require(Issuer(faulty.issuer("keys-wait"))),
            credentials: ClientCredentials(identifier: "device-7", secret: Secret("s&cret +%/")),
            http: http,
            clock: watched
        )
        let test = TestClient(client: client, http: http)
        _ = try await test.signIn()
        _ = try await test.page("rotate")
        clock.advance(by: KeyCache.pause)
        let tokens = [try await test.page("logout-token"), try await test.page("logout-token")]
        let first = Task { try await client.logoutToken(tokens[0]) }
        try await eventually("the keys are asked for") { try await test.page("key-requests") == "2" }
        let before = looks.withLock { $0 }
        let second = Task { try await client.logoutToken(tokens[1]) }
        try await eventually("the second token is looked at") { looks.withLock { $0 } > before }
        _ = try await test.page("free-keys")
        #expect(try await first.value.subject == "ada")
        #expect(try await second.value.subject == "ada")
        #expect(try await test.page("key-requests") == "2")
    }

    @Test("a cancelled caller stops waiting for the keys; the other callers get them")
    func givenUp() async throws {
        let clock = TestClock()
        let test = try await client("keys-wait.given-up", clock: clock)
        _ = try await test.signIn()
        _ = try await test.page("rotate")
        clock.advance(by: KeyCache.pause)
        let token = try await test.page("logout-token")
        let first = Task { try await test.client.logoutToken(token) }
        try await eventually("the keys are asked for") { try await test.page("key-requests") == "2" }
        first.cancel()
        let error = await #expect(throws: SignInError.self) { try await first.value }
        #expect(error == .cancelled)
        let second = Task { try await test.client.logoutToken(token) }
        _ = try await test.page("free-keys")
        #expect(try await second.value.subject == "ada")
        #expect(try await test.page("key-requests") == "2")
    }

    @Test("a stranger's token does not delay reading keys for the provider's responses")
    func stranger() async throws {
        let clock = TestClock()
        let test = try await client("none.stranger", clock: clock)
        let signedIn = try await test.signIn()
        clock.advance(by: KeyCache.pause)
        // Signed with another provider's key, so the keys are read and do not contain it.
        let foreign = try await client("none.other-keys", clock: clock).page("logout-token")
        await #expect(throws: SignInError.self) { try await test.client.logoutToken(foreign) }
        #expect(try await test.page("key-requests") == "2")
        _ = try await test.page("rotate")
        // Messages have used up their minute.
        await #expect(throws: SignInError.self) { try await test.client.logoutToken(foreign) }
        #expect(try await test.page("key-requests") == "2")
        let outcome = try await refresh(test, signedIn)
        guard case .renewed = outcome else {
            Issue.record("not renewed: \(outcome)")
            return
        }
        #expect(try await test.page("key-requests") == "3")
    }

    @Test("each need has its own minute; messages wait for the minutes of all needs")
    func pauses() throws {
        let start = ContinuousClock.now
        let text = #"{"alg":"ES256","kid":"1"}"#
        let token = try CompactSignature(parsing: "\(Base64URL.encode(text.utf8)).e30.AAAA")
        let empty = try JSONWebKeySet(parsing: Array(#"{"keys":[]}"#.utf8))
        let unknown = KeyCache.Verdict.refused(.unknownKey(.es256, identifier: "1"))
        var cache = KeyCache()
        cache.willFetch(at: start, for: .preparation)
        cache.read(empty, at: start)
        #expect(cache.verify(token, at: start, for: .message) == unknown)
        #expect(cache.verify(token, at: start, for: .answer) == .fetch)
        cache.willFetch(at: start + .seconds(59), for: .answer)
        #expect(cache.verify(token, at: start + .seconds(60), for: .answer) == unknown)
        #expect(cache.verify(token, at: start + .seconds(60), for: .message) == unknown)
        #expect(cache.verify(token, at: start + .seconds(119), for: .message) == .fetch)
        cache.willFetch(at: start + .seconds(119), for: .message)
        #expect(cache.verify(token, at: start + .seconds(119), for: .answer) == .fetch)
        #expect(cache.readiness(at: start + .seconds(3600)) == .fetch)
    }

    // MARK: Failures

    @Test("a read that fails at once has failed for the caller that began it")
    func failsAtOnce() async throws {
        let clock = TestClock()
        let text = #"{"alg":"ES256","kid":"1"}"#
        let token = try CompactSignature(parsing: "\(Base64URL.encode(text.utf8)).e30.AAAA")
        let empty = try JSONWebKeySet(parsing: Array(#"{"keys":[]}"#.utf8))
        let failure = SignInError.unreachable(try #require(Issuer("https://example.com")), "its keys are away")
        for _ in 1...2000 {
            let keys = ProviderKeys(clock: clock.clock)
            _ = try await keys.verify(token, for: .message) { willAsk in
                willAsk()
                return .success(empty)
            }
            clock.advance(by: KeyCache.pause)
            await #expect(throws: failure) {
                try await keys.verify(token, for: .message) { willAsk in
                    willAsk()
                    return .failure(failure)
                }
            }
        }
    }

    @Test("Retry-After of the metadata is respected and passed on")
    func descriptionLater() async throws {
        let clock = TestClock()
        let test = try await client("discovery-retry-after", clock: clock)
        for pause in [0, 61, 58] {
            clock.advance(by: .seconds(pause))
            let error = try #require(try await test.refusal())
            #expect(error.code == .providerUnavailable && error.retryAfter == .seconds(120))
        }
        clock.advance(by: .seconds(1))
        #expect(try await test.refusal() == nil)
    }

    @Test("Retry-After of the keys is respected and passed on")
    func keysLater() async throws {
        let clock = TestClock()
        let test = try await client("keys-retry-after", clock: clock)
        let signedIn = try await test.signIn()
        clock.advance(by: KeyCache.age)
        guard case .unavailable(let error, tokenMayBeUsed: false) = try await refresh(test, signedIn) else {
            Issue.record("sent without keys")
            return
        }
        #expect(error.retryAfter == .seconds(120))
        clock.advance(by: .seconds(119))
        _ = try await refresh(test, signedIn)
        #expect(try await test.page("key-requests") == "2")
        clock.advance(by: .seconds(1))
        let outcome = try await refresh(test, signedIn)
        guard case .renewed = outcome else {
            Issue.record("not renewed: \(outcome)")
            return
        }
    }

    @Test("a network change lets failed reads retry at once; others keep their pause")
    func networkIsBack() async throws {
        let clock = TestClock()
        let test = try await client("discovery-retry-after.network", clock: clock)
        #expect(try await test.refusal() != nil)
        test.client.forgetFailures()
        let signedIn = try await test.signIn()

        let other = try await client("keys-away.network", clock: clock)
        let ada = try await other.signIn()
        clock.advance(by: KeyCache.age)
        guard case .unavailable = try await refresh(other, ada) else {
            Issue.record("sent without keys")
            return
        }
        other.client.forgetFailures()
        guard case .renewed = try await refresh(other, ada) else {
            Issue.record("not renewed")
            return
        }
        #expect(signedIn.identity.subject == "ada")

        let quiet = try await client("none.network", clock: clock)
        _ = try await quiet.signIn()
        quiet.client.forgetFailures()
        let foreign = try await client("none.other-keys", clock: clock).page("logout-token")
        await #expect(throws: SignInError.self) { try await quiet.client.logoutToken(foreign) }
        #expect(try await quiet.page("key-requests") == "1")
    }
}
