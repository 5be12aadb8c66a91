import Basics
import FoundationEssentials
import OpenIDConnect
import TestProviders
import Testing

@testable import OrganisationIdentity

@Suite("Kept sign-ins and pending sign-ins")
struct KeptSignInTests {
    private let now = Date(timeIntervalSince1970: 1_800_000_000)

    private func tokens(_ name: String, lifetime: Double) throws -> TokenAnswer {
        let members: [String: JSONValue] = [
            "access_token": .string(name), "token_type": .string("Bearer"), "expires_in": .number(lifetime),
        ]
        return try TokenAnswer(.object(members), issuer: #require(Issuer("https://login.example.com")))
    }

    private func signIn() throws -> KeptSignIn {
        let identity = IDToken(
            kept: try #require(Issuer("https://login.example.com")),
            subject: "ada",
            authorizedParty: nil,
            authenticatedAt: nil,
            nonce: nil,
            isSigned: true
        )
        return KeptSignIn(identity, try tokens("a day", lifetime: 86_400), scopes: [], now: now)
    }

    @Test("of too many tokens those of checks, or the first to expire, are dropped")
    func accessTokens() throws {
        var kept = try signIn()
        kept.renew(try tokens("app", lifetime: 600), now: now)
        for number in 0..<100 {
            kept.renew(try tokens("\(number)", lifetime: 3600 + Double(number)), isCheck: true, now: now)
        }
        #expect(kept.accessTokens.map(\.value) == (38..<100).map { "\($0)" } + ["app", "a day"])
        let issuer = try #require(Issuer("https://login.example.com"))
        let again = try #require(KeptSignIn(try kept.record(of: issuer), of: issuer))
        // Tokens are revoked from the end of the list: those of checks after those of apps.
        #expect(again.accessTokens.suffix(3).map(\.value) == ["99", "app", "a day"])
        var apps = try signIn()
        for number in 0..<100 { apps.renew(try tokens("\(number)", lifetime: 60 + Double(number)), now: now) }
        #expect(apps.accessTokens.map(\.value) == (37..<100).map { "\($0)" } + ["a day"])
        apps.renew(try tokens("late", lifetime: 60), now: now + 3600)
        #expect(apps.accessTokens.map(\.value) == ["late", "a day"])
    }

    @Test("a sign-in that is being completed does not expire; an unanswered one does")
    func completing() async throws {
        let client = try await FaultyProvider.client("none").client
        let flow = try await client.beginSignIn(redirect: testRedirect)
        let signIn = BrowserSignIn(flow: flow, requestedAt: now, scopes: [], only: nil)
        let start = ContinuousClock.now
        var pending = PendingSignIns()
        for handle in ["answered", "unanswered"] {
            let isPut = pending.reserve(handle, at: start) && pending.put(.browser(signIn), handle)
            #expect(isPut)
        }
        let taken = pending.take("answered")
        #expect(taken != nil)
        let isReserved = pending.reserve("another", at: start + .seconds(601))
        #expect(isReserved && Set(pending.handles) == ["answered", "another"])
    }
}
