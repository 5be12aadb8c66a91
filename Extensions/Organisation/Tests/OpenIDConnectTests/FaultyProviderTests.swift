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
    private func client(_ fault: String) async throws -> TestClient { try await FaultyProvider.client(fault) }

    private static let unsigned = "the ID token is not signed by https://localhost:"

    private func error(_ fault: String) async throws -> IdentityError {
        try #require(try await client(fault).refusal(), "\(fault) was accepted")
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
        #expect(signedIn.tokens.refreshToken != nil && signedIn.tokens.lifetime == .seconds(3600))
    }

    @Test(
        "a token with a wrong signature or claim is rejected with the flaw",
        arguments: [
            ("idtoken-sig-none", unsigned), ("invalid-sig-rs256", unsigned), ("invalid-sig-ps256", unsigned),
            ("invalid-sig-es256", unsigned), ("invalid-sig-eddsa", unsigned), ("invalid-sig-hs256", unsigned),
            ("kid-absent-multiple-jwks", unsigned), ("crit", unsigned), ("jku", unsigned), ("encrypted", unsigned),
            // The token of another sign-in, person or time. The error for a wrong time names both clocks.
            ("nonce-invalid", "the response belongs to another sign-in"),
            ("missing-nonce", "the response belongs to another sign-in"),
            ("invalid-athash", "the response belongs to another sign-in"),
            ("wrong-state", "the response belongs to another sign-in"),
            ("answer-iss-missing", "the response belongs to another sign-in"),
            ("earlier-person", "took an earlier person's sign-in; close its pages"),
            ("expired", "this device's clock says 20 … ; set the clock, and sign in again"),
            ("of-the-future", "this device's clock says 20 … ; set the clock, and sign in again"),
            ("not-yet", "this device's clock says 20 … ; set the clock, and sign in again"),
            // An unusable token. The error names the claim. “…” stands for any text.
            ("missing-aud", "unusable: “aud” of its token is missing"),
            ("missing-iat", "unusable: “iat” of its token is missing"),
            ("missing-exp", "unusable: “exp” of its token is missing"),
            ("missing-sub", "unusable: “sub” of its token is missing"),
            ("long-sub", "unusable: “sub” of its token is not 1 to 255 characters of ASCII"),
            ("wrong-typ", "unusable: “typ” of its token is “logout+jwt”"),
            ("number-sub", "unusable: “sub” of its token is a number, and not a text"),
            ("text-iat", "unusable: “iat” of its token is a text, and not a number"),
            ("millisecond-iat", "unusable: “iat” of its token is no time in seconds"),
            ("invalid-aud", "unusable: “aud” of its token lacks “device-7”"),
            (
                "several-audiences",
                "unusable: “aud” of its token names several clients, and “azp”, which says for whom it is, is missing"
            ),
            ("wrong-azp", "unusable: “azp” of its token is not “device-7”"),
            ("many-groups", "unusable: its ID token: it has more than 65536 bytes"),
            (
                "key-padded",
                "unusable: its key … has “x” missing or in another form; numbers are base64url without padding"
            ),
        ] as [(String, String)]
    )
    func claims(fault: String, flaw: String) async throws {
        let error = try await error(fault)
        let hasWords = flaw.split(separator: " … ").allSatisfy { error.description.contains($0) }
        #expect(error.code == .authenticationFailed && hasWords, "\(error)")
        #expect(flaw != Self.unsigned || error.description.hasPrefix(flaw), "\(error)")
    }

    @Test(
        "unusable metadata and error responses have the right codes",
        arguments: [
            ("discovery-html", IdentityError.Code.providerUnavailable), ("discovery-unavailable", .providerUnavailable),
            ("discovery-duplicate", .providerUnavailable), ("discovery-large", .providerUnavailable),
            ("discovery-redirect", .providerMisconfigured), ("discovery-no-keys", .providerMisconfigured),
            ("discovery-plain-http", .providerMisconfigured),
            // The pages.
            ("authorize-error-access-denied", .userCanceled),
            ("authorize-error-login-required", .interactionRequired),
            ("authorize-error-invalid-scope", .invalidScope),
            ("authorize-error-unauthorized-client", .providerMisconfigured),
            ("authorize-error-temporarily-unavailable", .providerUnavailable),
            // The token endpoint.
            ("token-error-invalid-grant", .authenticationFailed),
            ("token-error-invalid-client", .providerMisconfigured),
            ("token-html", .providerUnavailable), ("exchange-cut", .providerUnavailable),
            ("exchange-redirect", .providerMisconfigured), ("exchange-large", .providerUnavailable),
            ("token-type-mac", .providerMisconfigured), ("no-id-token", .authenticationFailed),
        ]
    )
    func answers(fault: String, code: IdentityError.Code) async throws {
        #expect(try await client(fault).refusal()?.code == code)
    }

    @Test(
        "a different issuer is a configuration error that names both issuers",
        arguments: [
            "invalid-iss", "discovery-issuer-mismatch", "answer-iss-wrong", "wrong-iss-unasked",
            "second-description-mismatch",
        ]
    )
    func issuer(fault: String) async throws {
        let error = try await error(fault)
        #expect(error.code == .providerMisconfigured)
        #expect(error.description.contains("/\(fault); they must be the same, to the last slash"), "\(error)")
    }

    @Test("the errors for a refused redirect and a wrong client secret name the remedy")
    func registration() async throws {
        let redirect = try await error("authorize-error-redirect-uri-mismatch")
        #expect(redirect.code == .providerMisconfigured)
        #expect(redirect.description.hasSuffix("; register http://127.0.0.1:8976/callback there"))
        let secret = try #require(try await FaultyProvider.client("none", secret: "wrong").refusal())
        #expect(secret.description.contains("does not know this device's client ID or secret; compare oidcClientID"))
    }

    @Test("a code is accepted once, and only with its own verifier")
    func codeOnce() async throws {
        let test = try await client("none")
        let flow = try await test.client.beginSignIn(redirect: testRedirect)
        let other = try await test.client.beginSignIn(redirect: testRedirect)
        let query = try await test.browse(flow.address(scopes: ["openid"]))
        func complete(_ flow: AuthorizationCodeFlow) async throws {
            _ = try await test.client.completeSignIn(flow, query: query, requestedAt: Date())
        }
        await #expect(throws: IdentityError.self) { try await complete(other) }
        try await complete(flow)
        await #expect(throws: IdentityError.self) { try await complete(flow) }
    }

    @Test("after a cancelled sign-in the next one succeeds")
    func givenUp() async throws {
        let test = try await client("none")
        let task = Task {
            // The task must be cancelled before the response arrives.
            while !Task.isCancelled { await Task.yield() }
            return try await test.client.beginSignIn(redirect: testRedirect)
        }
        task.cancel()
        let error = await #expect(throws: IdentityError.self) { try await task.value }
        #expect(error?.code == .userCanceled)
        #expect(try await test.refusal() == nil)
    }

    @Test("without an ID token userinfo identifies the person; a refresh may bring one")
    func withoutIDToken() async throws {
        func signIn(_ fault: String) async throws -> (TestClient, OpenIDConnectClient.SignedIn) {
            let test = try await client(fault)
            return (test, try await test.client.signInByDeviceCode(scopes: ["openid"]) { _ in })
        }
        #expect(try await signIn("no-id-token").1.identity.subject == "ada")
        await #expect(throws: IdentityError.self) { try await signIn("no-id-token-nobody") }
        let (later, signedIn) = try await signIn("id-token-later")
        #expect(try await later.refresh(signedIn).tokens.idToken != nil)
        // In a response, null counts as a missing member.
        let nulls = try await client("nulls")
        let tokens = try await nulls.refresh(nulls.signIn()).tokens
        #expect(tokens.refreshToken == nil && tokens.idToken == nil)
    }

    // MARK: Refresh

    @Test(
        "a refresh with another issuer, subject or sign-in renews nothing",
        arguments: [
            "refresh-token-invalid-issuer", "refresh-token-invalid-sub", "refresh-token-other-time",
            "refresh-token-other-nonce", "refresh-token-new-party",
        ]
    )
    func refreshOfOthers(fault: String) async throws {
        let test = try await client(fault)
        #expect(try await test.refresh(test.signIn()).kind == .reauthenticationNeeded)
    }

    // MARK: Logout tokens

    private func logoutToken(_ fault: String) async throws -> LogoutToken {
        let test = try await client("backchannel-" + fault)
        return try await test.client.logoutToken(test.page("logout-token"))
    }

    @Test("rp-backchannel: a logout token names session or person; others are rejected")
    func logout() async throws {
        let token = try await logoutToken("none")
        #expect(token.subject == "ada" && token.sessionIdentifier == "session-1")
        #expect(try await logoutToken("sub-only").sessionIdentifier == nil)
        for fault in [
            "alg-none", "wrong-alg", "no-event", "wrong-event", "with-nonce", "wrong-aud", "wrong-iss", "no-jti",
            "nobody", "old",
        ] { await #expect(throws: IdentityError.self, "\(fault)") { try await logoutToken(fault) } }
        // An ID token is neither a logout token nor an event token.
        let test = try await client("none")
        let text = try #require(try await test.signIn().tokens.idToken)
        let verified = try await test.client.verify(text)
        await #expect(throws: IdentityError.self) { try await test.client.logoutToken(text) }
        #expect(throws: IdentityError.self) {
            try SecurityEventToken(verified, issuer: test.client.issuer, audience: "device-7", now: Date())
        }
    }
}
