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
    private let clock = TestClock()

    private func client(_ fault: String) async throws -> TestClient {
        try await FaultyProvider.client(fault, clock: clock.clock)
    }

    /// A client that has to read the keys again, and whose request for them waits.
    private func waiting(_ fault: String, watched: OpenIDConnectClient.Clock? = nil) async throws -> TestClient {
        let test = try await FaultyProvider.client(fault, clock: watched ?? clock.clock)
        _ = try await test.signIn()
        _ = try await test.page("rotate")
        clock.advance(by: KeyCache.pause)
        return test
    }

    @Test("a token that arrives during a read of the keys causes no second request")
    func shared() async throws {
        let looks = Locked(0)
        let watched = OpenIDConnectClient.Clock(now: { [clock] in
            looks.withLock { $0 += 1 }
            return clock.now
        })
        let test = try await waiting("keys-wait", watched: watched)
        let tokens = [try await test.page("logout-token"), try await test.page("logout-token")]
        let first = Task { try await test.client.logoutToken(tokens[0]) }
        try await eventually("the keys are asked for") { try await test.page("key-requests") == "2" }
        let before = looks.withLock { $0 }
        let second = Task { try await test.client.logoutToken(tokens[1]) }
        try await eventually("the second token is looked at") { looks.withLock { $0 } > before }
        _ = try await test.page("go-on")
        #expect(try await first.value.subject == "ada")
        #expect(try await second.value.subject == "ada")
        #expect(try await test.page("key-requests") == "2")
    }

    @Test("a cancelled caller stops waiting for the keys; the other callers get them")
    func givenUp() async throws {
        let test = try await waiting("keys-wait.given-up")
        let token = try await test.page("logout-token")
        let first = Task { try await test.client.logoutToken(token) }
        try await eventually("the keys are asked for") { try await test.page("key-requests") == "2" }
        first.cancel()
        let error = await #expect(throws: IdentityError.self) { try await first.value }
        #expect(error == .cancelled)
        let second = Task { try await test.client.logoutToken(token) }
        _ = try await test.page("go-on")
        #expect(try await second.value.subject == "ada")
        #expect(try await test.page("key-requests") == "2")
    }

    @Test("a stranger's token does not delay reading keys for the provider's responses")
    func stranger() async throws {
        let test = try await client("none.stranger")
        let signedIn = try await test.signIn()
        clock.advance(by: KeyCache.pause)
        // Signed with another provider's key, so the keys are read and do not contain it.
        let foreign = try await client("none.other-keys").page("logout-token")
        await #expect(throws: IdentityError.self) { try await test.client.logoutToken(foreign) }
        #expect(try await test.page("key-requests") == "2")
        _ = try await test.page("rotate")
        // Messages have used up their minute.
        await #expect(throws: IdentityError.self) { try await test.client.logoutToken(foreign) }
        #expect(try await test.page("key-requests") == "2")
        #expect(try await test.refresh(signedIn).kind == .renewed)
        #expect(try await test.page("key-requests") == "3")
    }

    // MARK: Failures

    @Test("a read that fails at once has failed for the caller that began it")
    func failsAtOnce() async throws {
        let unknown = try UnknownKey()
        let failure = IdentityError.unreachable(try #require(Issuer("https://example.com")), "its keys are away")
        for _ in 1...2000 {
            let keys = ProviderKeys(clock: clock.clock)
            _ = try await keys.verify(unknown.token, for: .message) { willAsk in
                willAsk()
                return .success(unknown.keys)
            }
            clock.advance(by: KeyCache.pause)
            await #expect(throws: failure) {
                try await keys.verify(unknown.token, for: .message) { willAsk in
                    willAsk()
                    return .failure(failure)
                }
            }
        }
    }

    @Test("Retry-After of the metadata is respected and passed on")
    func descriptionLater() async throws {
        let test = try await client("discovery-retry-after")
        for pause in [0, 61, 58] {
            clock.advance(by: .seconds(pause))
            let error = try #require(try await test.refusal())
            #expect(error.code == .providerUnavailable && error.retryAfter == .seconds(120))
        }
        clock.advance(by: .seconds(1))
        #expect(try await test.refusal() == nil)
    }

    @Test(
        "a refresh is not sent while the keys are away, for a minute or their Retry-After",
        arguments: [
            ("keys-away", nil, KeyCache.pause), ("keys-retry-after", .seconds(120), .seconds(120)),
        ] as [(String, Duration?, Duration)]
    )
    func keysLater(fault: String, retryAfter: Duration?, pause: Duration) async throws {
        let test = try await client(fault)
        let signedIn = try await test.signIn()
        clock.advance(by: KeyCache.age)
        for wait in [Duration.zero, pause - .seconds(1)] {
            clock.advance(by: wait)
            let outcome = try await test.refresh(signedIn)
            #expect(outcome.kind == .unavailable(mayBeUsed: false))
            if wait == .zero { #expect(outcome.outage?.retryAfter == retryAfter) }
        }
        #expect(try await test.page("key-requests") == "2")
        clock.advance(by: .seconds(1))
        #expect(try await test.refresh(signedIn).kind == .renewed)
    }

    @Test("a network change lets failed reads retry at once; other reads keep their pause")
    func networkIsBack() async throws {
        let test = try await client("discovery-retry-after.network")
        #expect(try await test.refusal() != nil)
        test.client.forgetFailures()
        let signedIn = try await test.signIn()

        let other = try await client("keys-away.network")
        let ada = try await other.signIn()
        clock.advance(by: KeyCache.age)
        #expect(try await other.refresh(ada).kind == .unavailable(mayBeUsed: false))
        other.client.forgetFailures()
        #expect(try await other.refresh(ada).kind == .renewed)
        #expect(signedIn.identity.subject == "ada")

        let quiet = try await client("none.network")
        _ = try await quiet.signIn()
        quiet.client.forgetFailures()
        let foreign = try await client("none.other-keys").page("logout-token")
        await #expect(throws: IdentityError.self) { try await quiet.client.logoutToken(foreign) }
        #expect(try await quiet.page("key-requests") == "1")
    }
}
