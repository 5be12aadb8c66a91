import Basics
import FoundationEssentials
import HTTPClient
import Identity
import OpenIDConnect
import TestProviders
import Testing

/// The faults of the OpenID Foundation's test suite for relying parties, by their names there, and further ones.
@Suite("A faulty provider cannot complete a sign-in")
struct FaultyProviderTests {
    private func client(_ fault: String, clock: TestClock = TestClock()) async throws -> TestClient {
        try await FaultyProvider.shared.value.client(fault, clock: clock)
    }

    @Test(
        "a correct provider signs Ada in, with each algorithm and each permitted form",
        arguments: [
            "none", "rs256", "ps256", "eddsa", "kid-absent-single-jwks", "several-audiences-azp", "auth-time-zero",
            "second-description", "second-description-redirect", "second-description-page", "nulls",
        ]
    )
    func accepted(fault: String) async throws {
        let signedIn = try await client(fault).signIn()
        #expect(signedIn.identity.subject == "ada")
        #expect(signedIn.identity.claims["preferred_username"]?.string == "ada@example.com")
        #expect(signedIn.tokens.refreshToken != nil)
        #expect(signedIn.tokens.lifetime == .seconds(3600))
    }

    @Test(
        "tokens with a wrong signature are rejected",
        arguments: [
            "idtoken-sig-none", "invalid-sig-rs256", "invalid-sig-ps256", "invalid-sig-es256", "invalid-sig-eddsa",
            "invalid-sig-hs256", "kid-absent-multiple-jwks", "crit", "jku", "encrypted",
        ]
    )
    func signatures(fault: String) async throws {
        let error = try #require(try await client(fault).refusal())
        #expect(error.code == .authenticationFailed)
        #expect(error.description.hasPrefix("the ID token is not signed by https://localhost:"))
    }

    @Test(
        "tokens of another sign-in are rejected",
        arguments: [
            "nonce-invalid", "missing-nonce", "invalid-athash", "wrong-state",
            "answer-iss-missing",
        ]
    )
    func anotherSignIn(fault: String) async throws {
        let error = try #require(try await client(fault).refusal())
        #expect(error.code == .authenticationFailed)
        #expect(error.description.hasPrefix("the answer belongs to another sign-in"))
    }

    @Test(
        "the error for an unusable token names the claim and the flaw",
        arguments: [
            ("missing-aud", "“aud” of its token is missing"), ("missing-iat", "“iat” of its token is missing"),
            ("missing-exp", "“exp” of its token is missing"), ("missing-sub", "“sub” of its token is missing"),
            ("long-sub", "“sub” of its token is not 1 to 255 characters of ASCII"),
            ("wrong-typ", "“typ” of its token is “logout+jwt”"),
            ("number-sub", "“sub” of its token is a number, and not a text"),
            ("text-iat", "“iat” of its token is a text, and not a number"),
            ("millisecond-iat", "“iat” of its token is no time in seconds"),
            ("invalid-aud", "“aud” of its token lacks “device-7”"),
            (
                "several-audiences",
                "“aud” of its token names several clients, and “azp”, which says for whom it is, is missing"
            ),
            ("wrong-azp", "“azp” of its token is not “device-7”"),
            ("many-groups", "its ID token: it has more than 65536 bytes"),
            ("key-padded", "has “x” missing or in another form; numbers are base64url without padding"),
        ]
    )
    func incomplete(fault: String, flaw: String) async throws {
        let error = try #require(try await client(fault).refusal())
        #expect(error.code == .authenticationFailed)
        #expect(error.description.contains(" responds with something unusable: "), "\(error)")
        #expect(error.description.contains(flaw), "\(error)")
    }

    @Test("the error for a token's wrong times names both clocks", arguments: ["expired", "of-the-future", "not-yet"])
    func time(fault: String) async throws {
        let error = try #require(try await client(fault).refusal())
        #expect(error.code == .authenticationFailed)
        #expect(error.description.contains("this device's clock says 20"), "\(error)")
    }

    @Test("a session of an earlier person in the browser is rejected")
    func earlierPerson() async throws {
        let error = try #require(try await client("earlier-person").refusal())
        #expect(error.code == .authenticationFailed)
        #expect(error.description.contains("took an earlier person's sign-in; close its pages"))
    }

    @Test(
        "a different issuer is a configuration error that names both issuers",
        arguments: [
            "invalid-iss", "discovery-issuer-mismatch", "answer-iss-wrong", "wrong-iss-unasked",
            "second-description-mismatch",
        ]
    )
    func issuer(fault: String) async throws {
        let error = try #require(try await client(fault).refusal())
        #expect(error.code == .providerMisconfigured)
        #expect(error.description.contains("/\(fault); they must be the same, to the last slash"), "\(error)")
    }

    @Test(
        "unusable metadata is rejected with the right code",
        arguments: [
            ("discovery-html", SignInError.Code.providerUnavailable), ("discovery-unavailable", .providerUnavailable),
            ("discovery-duplicate", .providerUnavailable), ("discovery-large", .providerUnavailable),
            ("discovery-redirect", .providerMisconfigured), ("discovery-no-keys", .providerMisconfigured),
            ("discovery-plain-http", .providerMisconfigured),
        ]
    )
    func discovery(fault: String, code: SignInError.Code) async throws {
        #expect(try await client(fault).refusal()?.code == code)
    }

    @Test(
        "error responses of the pages and the token endpoint have the right codes",
        arguments: [
            ("authorize-error-access-denied", SignInError.Code.userCanceled),
            ("authorize-error-login-required", .interactionRequired),
            ("authorize-error-invalid-scope", .invalidScope),
            ("authorize-error-unauthorized-client", .providerMisconfigured),
            ("authorize-error-temporarily-unavailable", .providerUnavailable),
            ("token-error-invalid-grant", .authenticationFailed),
            ("token-error-invalid-client", .providerMisconfigured),
            ("token-html", .providerUnavailable), ("exchange-cut", .providerUnavailable),
            ("token-type-mac", .providerMisconfigured),
            ("no-id-token", .authenticationFailed),
        ]
    )
    func answers(fault: String, code: SignInError.Code) async throws {
        #expect(try await client(fault).refusal()?.code == code)
    }

    @Test(
        "a redirect or an endless response to the code exchange is rejected",
        arguments: ["exchange-redirect", "exchange-large"]
    )
    func noTokens(fault: String) async throws {
        let code = try await client(fault).refusal()?.code
        #expect(code == .providerUnavailable || code == .providerMisconfigured, "\(String(describing: code))")
    }

    @Test("the error for a refused redirect names the address to register")
    func redirectRefused() async throws {
        let error = try #require(try await client("authorize-error-redirect-uri-mismatch").refusal())
        #expect(error.code == .providerMisconfigured)
        #expect(error.description.hasPrefix("register http://127.0.0.1:8976/callback with https://localhost:"))
    }

    @Test("a wrong client secret has its own error")
    func clientSecret() async throws {
        let error = try #require(try await FaultyProvider.shared.value.client("none", secret: "wrong").refusal())
        #expect(error.description.hasSuffix("does not know this device's client ID or secret"))
    }

    @Test("a code is accepted once, and only with its own verifier")
    func codeOnce() async throws {
        let test = try await client("none")
        let redirect = "http://127.0.0.1:8976/callback"
        let (flow, other) = (
            try await test.client.beginSignIn(redirect: redirect), try await test.client.beginSignIn(redirect: redirect)
        )
        let query = try await test.browse(flow.address(scopes: ["openid"]))
        await #expect(throws: SignInError.self) {
            try await test.client.completeSignIn(other, query: query, requestedAt: Date())
        }
        _ = try await test.client.completeSignIn(flow, query: query, requestedAt: Date())
        await #expect(throws: SignInError.self) {
            try await test.client.completeSignIn(flow, query: query, requestedAt: Date())
        }
    }

    @Test("after a cancelled sign-in the next one succeeds")
    func givenUp() async throws {
        let test = try await client("none")
        let task = Task {
            // The task must be cancelled before the response arrives.
            while !Task.isCancelled { await Task.yield() }
            return try await test.client.beginSignIn(redirect: "http://127.0.0.1:8976/callback")
        }
        task.cancel()
        let error = await #expect(throws: SignInError.self) { try await task.value }
        #expect(error?.code == .userCanceled)
        #expect(try await test.refusal() == nil)
    }

    // MARK: Keys

    @Test("signing-key-rotation: keys are read for an unknown key, once a minute at most")
    func keyRotation() async throws {
        let clock = TestClock()
        let test = try await client("signing-key-rotation", clock: clock)
        _ = try await test.signIn()
        _ = try await test.page("rotate")
        #expect(try await test.refusal()?.code == .authenticationFailed)
        clock.advance(by: .seconds(61))
        #expect(try await test.refusal() == nil)
    }

    // MARK: Device code

    @Test(
        "a device code that is denied or expires ends with its own error",
        arguments: [
            ("device-denied", SignInError.Code.userCanceled), ("device-declined", .userCanceled),
            ("device-expired", .loginExpired),
        ]
    )
    func deviceCodeRefused(fault: String, code: SignInError.Code) async throws {
        let client = try await client(fault).client
        let error = await #expect(throws: SignInError.self) {
            try await client.signInByDeviceCode(scopes: ["openid"]) { _ in }
        }
        #expect(error?.code == code)
    }

    @Test("without an ID token, only the userinfo endpoint can identify the person")
    func withoutIDToken() async throws {
        let signedIn = try await client("no-id-token").client.signInByDeviceCode(scopes: ["openid"]) { _ in }
        #expect(signedIn.identity.subject == "ada")
        let nobody = try await client("no-id-token-nobody").client
        await #expect(throws: SignInError.self) { try await nobody.signInByDeviceCode(scopes: ["openid"]) { _ in } }
    }

    @Test("a first ID token in a refresh is accepted for the person from userinfo")
    func laterIDToken() async throws {
        let test = try await client("id-token-later")
        let signedIn = try await test.client.signInByDeviceCode(scopes: ["openid"]) { _ in }
        let token = try #require(signedIn.tokens.refreshToken)
        guard case .renewed(let tokens) = await test.client.refresh(token, of: signedIn.identity) else {
            Issue.record("not renewed")
            return
        }
        #expect(tokens.idToken != nil)
    }

    @Test("userinfo-invalid-sub: claims about another person are rejected")
    func userInfo() async throws {
        let test = try await client("userinfo-invalid-sub")
        let signedIn = try await test.signIn()
        let error = await #expect(throws: SignInError.self) {
            try await test.client.userInfo(signedIn.tokens.accessToken.text, of: signedIn.identity.subject)
        }
        #expect(error?.code == .authenticationFailed)
    }

    // MARK: Refresh

    @Test("a refresh is not sent while the keys are unavailable")
    func keysAway() async throws {
        let clock = TestClock()
        let test = try await client("keys-away", clock: clock)
        let signedIn = try await test.signIn()
        let token = try #require(signedIn.tokens.refreshToken)
        clock.advance(by: KeyCache.age)
        for _ in 0..<2 {
            guard case .unavailable(_, tokenMayBeUsed: false) = await test.client.refresh(token, of: signedIn.identity)
            else {
                Issue.record("sent without keys")
                return
            }
        }
        clock.advance(by: KeyCache.pause)
        let outcome = await test.client.refresh(token, of: signedIn.identity)
        guard case .renewed = outcome else {
            Issue.record("not renewed: \(outcome)")
            return
        }
    }

    @Test("null in a response counts as a missing member")
    func nulls() async throws {
        let test = try await client("nulls")
        let signedIn = try await test.signIn()
        let token = try #require(signedIn.tokens.refreshToken)
        guard case .renewed(let tokens) = await test.client.refresh(token, of: signedIn.identity) else {
            Issue.record("not renewed")
            return
        }
        #expect(tokens.refreshToken == nil && tokens.idToken == nil)
    }

    @Test(
        "a refresh with another issuer, subject or sign-in renews nothing",
        arguments: [
            "refresh-token-invalid-issuer", "refresh-token-invalid-sub", "refresh-token-other-time",
            "refresh-token-other-nonce", "refresh-token-new-party",
        ]
    )
    func refreshOfOthers(fault: String) async throws {
        let test = try await client(fault)
        let signedIn = try await test.signIn()
        let token = try #require(signedIn.tokens.refreshToken)
        guard case .reauthenticationNeeded = await test.client.refresh(token, of: signedIn.identity) else {
            Issue.record("the other one's tokens were taken")
            return
        }
    }

    // MARK: Logout tokens

    private func logoutToken(_ fault: String) async throws -> LogoutToken {
        let test = try await client("backchannel-" + fault)
        let text = try await test.page("logout-token")
        return try LogoutToken(
            await test.client.verify(text),
            issuer: test.client.issuer,
            clientID: "device-7",
            now: Date()
        )
    }

    @Test("rp-backchannel: a logout token names the session, the person or both")
    func logout() async throws {
        let token = try await logoutToken("none")
        #expect(token.subject == "ada" && token.sessionIdentifier == "session-1")
        #expect(try await logoutToken("sub-only").sessionIdentifier == nil)
    }

    @Test(
        "rp-backchannel: invalid logout tokens are rejected",
        arguments: [
            "alg-none", "wrong-alg", "no-event", "wrong-event", "with-nonce", "wrong-aud", "wrong-iss", "no-jti",
            "nobody", "old",
        ]
    )
    func logoutRefused(fault: String) async throws {
        await #expect(throws: SignInError.self) { try await logoutToken(fault) }
    }

    @Test("an ID token is rejected as a logout token and as an event token")
    func confusion() async throws {
        let test = try await client("none")
        let text = try #require(try await test.signIn().tokens.idToken)
        let verified = try await test.client.verify(text)
        #expect(throws: SignInError.self) {
            try LogoutToken(verified, issuer: test.client.issuer, clientID: "device-7", now: Date())
        }
        #expect(throws: SignInError.self) {
            try SecurityEventToken(verified, issuer: test.client.issuer, audience: "device-7", now: Date())
        }
    }
}
