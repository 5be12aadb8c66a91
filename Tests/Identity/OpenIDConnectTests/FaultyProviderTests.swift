import FoundationEssentials
import HTTPClient
import Identity
import OpenIDConnect
import StrictJSON
import TestProviders
import Testing

/// Each mistake that the OpenID Foundation's suite for relying parties makes, by its name there, and more.
@Suite("A provider that makes mistakes signs nobody in")
struct FaultyProviderTests {
    private func client(_ fault: String, clock: TestClock = TestClock()) async throws -> TestClient {
        try await FaultyProvider.shared.value.client(fault, clock: clock)
    }

    @Test(
        "a provider without a mistake signs Ada in, with each algorithm and each permitted form",
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
        "tokens that are signed wrongly",
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
        "tokens of another sign-in",
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
        "a token that cannot be used names the claim, and what is wrong with it",
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

    @Test("tokens of another time name both clocks", arguments: ["expired", "of-the-future", "not-yet"])
    func time(fault: String) async throws {
        let error = try #require(try await client(fault).refusal())
        #expect(error.code == .authenticationFailed)
        #expect(error.description.contains("this device's clock says 20"), "\(error)")
    }

    @Test("the sign-in of an earlier person, whose session was left in the browser")
    func earlierPerson() async throws {
        let error = try #require(try await client("earlier-person").refusal())
        #expect(error.code == .authenticationFailed)
        #expect(error.description.contains("took an earlier person's sign-in; close its pages"))
    }

    @Test(
        "a provider that calls itself otherwise is the administrator's to mend, with both names",
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
        "descriptions that cannot be used",
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
        "what the pages and the token endpoint answer",
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
        "a redirect, or an endless answer, in place of a sign-in's tokens signs nobody in",
        arguments: ["exchange-redirect", "exchange-large"]
    )
    func noTokens(fault: String) async throws {
        let code = try await client(fault).refusal()?.code
        #expect(code == .providerUnavailable || code == .providerMisconfigured, "\(String(describing: code))")
    }

    @Test("a provider that refuses the redirect: the address to register is named")
    func redirectRefused() async throws {
        let error = try #require(try await client("authorize-error-redirect-uri-mismatch").refusal())
        #expect(error.code == .providerMisconfigured)
        #expect(error.description.hasPrefix("register http://127.0.0.1:8976/callback with https://localhost:"))
    }

    @Test("a wrong client secret is named as such")
    func clientSecret() async throws {
        let error = try #require(try await FaultyProvider.shared.value.client("none", secret: "wrong").refusal())
        #expect(error.description.hasSuffix("does not know this device's client ID or secret"))
    }

    @Test("a code counts once, and only with its own verifier")
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

    @Test("a sign-in that somebody gives up says nothing of the provider: the next one goes through")
    func givenUp() async throws {
        let test = try await client("none")
        let task = Task {
            // The answer must not be quicker.
            while !Task.isCancelled { await Task.yield() }
            return try await test.client.beginSignIn(redirect: "http://127.0.0.1:8976/callback")
        }
        task.cancel()
        let error = await #expect(throws: SignInError.self) { try await task.value }
        #expect(error?.code == .userCanceled)
        #expect(try await test.refusal() == nil)
    }

    // MARK: Keys

    @Test("signing-key-rotation: new keys are read when a token names one, and not more often than once a minute")
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
        "a device code that the person refuses, or that expires",
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

    @Test("without an ID token the provider is asked who it is; one that does not say signs nobody in")
    func withoutIDToken() async throws {
        let signedIn = try await client("no-id-token").client.signInByDeviceCode(scopes: ["openid"]) { _ in }
        #expect(signedIn.identity.subject == "ada")
        let nobody = try await client("no-id-token-nobody").client
        await #expect(throws: SignInError.self) { try await nobody.signInByDeviceCode(scopes: ["openid"]) { _ in } }
    }

    @Test("an ID token that comes only with a refresh is of the person whom the provider named before")
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

    @Test("userinfo-invalid-sub: what is said of another person does not count")
    func userInfo() async throws {
        let test = try await client("userinfo-invalid-sub")
        let signedIn = try await test.signIn()
        let error = await #expect(throws: SignInError.self) {
            try await test.client.userInfo(signedIn.tokens.accessToken.text, of: signedIn.identity.subject)
        }
        #expect(error?.code == .authenticationFailed)
    }

    // MARK: Refresh

    @Test("keys that are away keep a refresh from being sent, so that its token counts afterwards")
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

    @Test("null in an answer means that there is nothing")
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
        "a refresh that answers for another issuer, person or sign-in renews nothing",
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

    @Test("rp-backchannel: a logout token says whose session has ended, by session, person or both")
    func logout() async throws {
        let token = try await logoutToken("none")
        #expect(token.subject == "ada" && token.sessionIdentifier == "session-1")
        #expect(try await logoutToken("sub-only").sessionIdentifier == nil)
    }

    @Test(
        "rp-backchannel: logout tokens that end no session",
        arguments: [
            "alg-none", "wrong-alg", "no-event", "wrong-event", "with-nonce", "wrong-aud", "wrong-iss", "no-jti",
            "nobody", "old",
        ]
    )
    func logoutRefused(fault: String) async throws {
        await #expect(throws: SignInError.self) { try await logoutToken(fault) }
    }

    @Test("an ID token does not pass for a logout token")
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
