import Basics
import FoundationEssentials
import HTTPClient
import Identity
import TestProviders
import Testing

@testable import OpenIDConnect

@Suite("State machine of the browser sign-in")
struct AuthorizationCodeFlowTests {
    private let start = ContinuousClock.now

    private func flow() throws -> AuthorizationCodeFlow {
        AuthorizationCodeFlow(try provider(), redirect: testRedirect, start: start)
    }

    /// The query of the address that the browser opens.
    private func query(_ flow: AuthorizationCodeFlow) throws -> [String: String] {
        let address = try flow.address(
            scopes: ["openid", "profile"],
            loginHint: "ada@example.com",
            claims: #"{"a":1}"#
        )
        return try #require(FormFields.decode(String(address.drop { $0 != "?" }.dropFirst())))
    }

    private func refusal(_ effect: AuthorizationCodeFlow.Effect?) -> IdentityError? {
        guard case .finished(.failure(let error)) = effect else { return nil }
        return error
    }

    @Test("the request has PKCE, a state, a nonce and prompt=login; secrets are unique")
    func request() throws {
        let (first, second) = (try query(flow()), try query(flow()))
        let expected = [
            "response_type": "code", "client_id": "device-7", "redirect_uri": testRedirect, "scope": "openid profile",
            "prompt": "login", "login_hint": "ada@example.com", "claims": #"{"a":1}"#, "code_challenge_method": "S256",
        ]
        #expect(first.filter { expected.keys.contains($0.key) } == expected)
        for name in ["state", "nonce", "code_challenge"] {
            // 32 bytes in base64url.
            #expect(first[name]?.utf8.count == 43)
            #expect(first[name] != second[name])
        }
    }

    @Test("a code is exchanged once, with verifier and redirect; later events do nothing")
    func exchange() throws {
        var flow = try flow()
        let state = try #require(try query(flow)["state"])
        guard case .exchange(let request) = flow.handle(.answered("code=c%2B1&state=\(state)"), at: start) else {
            throw NoAddress()
        }
        #expect(request.address.text == "https://login.example.com/realm/token")
        let fields = form(request)
        #expect(fields["code_verifier"]?.utf8.count == 43)
        let names = ["grant_type", "code", "redirect_uri", "client_id"]
        #expect(names.map { fields[$0] } == ["authorization_code", "c+1", testRedirect, "device-7"])
        #expect(flow.handle(.answered("code=c2&state=\(state)"), at: start) == nil)
        guard case .finished(.success(let granted)) = flow.handle(.exchanged(.success(tokens)), at: start) else {
            throw NoAddress()
        }
        #expect(granted.lifetime == .seconds(60) && granted.accessToken.text == "a")
        #expect(flow.handle(.exchanged(.success(tokens)), at: start) == nil)
        #expect(flow.handle(.cancelled, at: start) == nil)
    }

    @Test("a query of another sign-in, a cancellation or the end of 600 s ends the flow")
    func refusals() throws {
        let long = String(repeating: "a", count: AuthorizationCodeFlow.longestQuery)
        let queries = [
            "", "code=c", "code=c&state=", "code=c&state=other", "state=%", "state=STATE",
            "code=c&state=STATE&state=STATE", long,
        ]
        var cases = queries.map {
            (AuthorizationCodeFlow.Event.answered($0), 0, IdentityError.Code.authenticationFailed)
        }
        cases += [(.answered("code=c&state=STATE"), 600, .loginExpired), (.cancelled, 0, .userCanceled)]
        for (event, seconds, code) in cases {
            var flow = try flow()
            let state = try #require(try query(flow)["state"])
            var event = event
            if case .answered(let query) = event { event = .answered(query.replacing("STATE", with: state)) }
            let effect = flow.handle(event, at: start + .seconds(seconds))
            #expect(refusal(effect)?.code == code, "\("\(event)".prefix(80))")
            #expect(flow.handle(.answered("code=c&state=\(state)"), at: start) == nil)
        }
    }

    @Test("the secret is in the header, or in the body if the provider accepts only that")
    func credentials() throws {
        let basic = try provider(secret: "a:b+c d")
        var flow = AuthorizationCodeFlow(basic, redirect: testRedirect, start: start)
        let state = try #require(try query(flow)["state"])
        guard case .exchange(let request) = flow.handle(.answered("code=c&state=\(state)"), at: start) else {
            throw NoAddress()
        }
        // device-7:a%3Ab%2Bc%20d
        #expect(request.fields["Authorization"] == "Basic ZGV2aWNlLTc6YSUzQWIlMkJjJTIwZA==")
        #expect(form(request)["client_secret"] == nil)
        let post = try provider(#","token_endpoint_auth_methods_supported":["client_secret_post"]"#, secret: "a:b")
        let posted = RefreshFlow(post, token: Secret("r")).begin()
        #expect(posted.fields["Authorization"] == nil && form(posted)["client_secret"] == "a:b")
        #expect(!"\(posted)".contains("a:b") && !"\(posted)".contains("r="))
    }
}

@Suite("State machine of the device grant")
struct DeviceGrantTests {
    private let start = ContinuousClock.now
    private let code = json(
        #"{"device_code":"d","user_code":"AB-12","verification_uri":"https://login.example.com/d","expires_in":1800}"#
    )

    /// A grant that has shown its code, and waits.
    private func waiting(secret: String? = nil) throws -> DeviceGrant {
        var grant = DeviceGrant(try provider(secret: secret), scopes: ["openid"], start: start)
        guard case .send(let request)? = grant.handle(.begin, at: start).first else { throw NoAddress() }
        #expect(form(request) == ["scope": "openid", "client_id": "device-7"])
        #expect(request.fields["Authorization"]?.hasPrefix("Basic ") == (secret == nil ? nil : true))
        guard case .show(let shown)? = grant.handle(.answered(.success(code)), at: start).first else {
            throw NoAddress()
        }
        #expect(shown.userCode == "AB-12" && shown.address.host == "login.example.com")
        return grant
    }

    @Test("polls name the client; slow_down adds 5 s to all waits, a timeout doubles them")
    func pace() throws {
        var grant = try waiting(secret: "s")
        let pending = oauthError("authorization_pending")
        for (answer, seconds) in [
            (pending, 5), (oauthError("slow_down"), 10), (pending, 10), (failure(.timedOut), 20),
            // Retry-After counts once.
            (.success(json("", status: 503, fields: ["retry-after": "100"])), 100), (pending, 40),
            (failure(.unreachable("no route")), 60), (failure(.timedOut), 60),
        ] as [(Result<HTTPResponse, HTTPError>, Int)] {
            _ = grant.handle(.awaited, at: start)
            guard case .send(let poll)? = grant.handle(.waited, at: start).first,
                case .wait(let pause)? = grant.handle(.answered(answer), at: start).first
            else { throw NoAddress() }
            #expect(form(poll)["client_id"] == "device-7" && form(poll)["client_secret"] == nil)
            #expect(pause == .seconds(seconds), "\(answer)")
        }
    }

    @Test("the grant ends after 15 minutes, or 30 s after the last poll of the caller")
    func ends() throws {
        func isOver(at passed: Duration, awaitedAt: Duration) throws -> Bool {
            var grant = try waiting()
            _ = grant.handle(.awaited, at: start + awaitedAt)
            guard case .finished(.failure(let error))? = grant.handle(.waited, at: start + passed).first else {
                return false
            }
            return error.code == .loginExpired
        }
        #expect(try !isOver(at: .seconds(899), awaitedAt: .seconds(890)))
        #expect(try isOver(at: .seconds(900), awaitedAt: .seconds(890)))
        #expect(try !isOver(at: .seconds(30), awaitedAt: .zero))
        #expect(try isOver(at: .seconds(31), awaitedAt: .zero))
    }

    @Test("error responses and untrusted certificates end the grant")
    func refusals() throws {
        for (answer, code) in [
            (oauthError("access_denied"), IdentityError.Code.userCanceled),
            // Entra's word for `access_denied`.
            (oauthError("authorization_declined"), .userCanceled), (oauthError("expired_token"), .loginExpired),
            (oauthError("invalid_client", status: 401), .providerMisconfigured),
            (oauthError("other"), .providerMisconfigured),
            (failure(.untrusted("expired")), .providerUnavailable), (failure(.cancelled), .userCanceled),
        ] {
            var grant = try waiting()
            _ = grant.handle(.waited, at: start)
            guard case .finished(.failure(let error))? = grant.handle(.answered(answer), at: start).first else {
                Issue.record("\(answer) did not end it")
                continue
            }
            #expect(error.code == code)
            #expect(grant.handle(.waited, at: start).isEmpty)
        }
    }

    @Test("a code is shown if it is complete, also with the member names of other providers")
    func codes() throws {
        let uri = #""verification_uri":"https://login.example.com/d""#
        for (members, lifetime) in [
            (#""user_code":"AB","verification_url":"https://login.example.com/d","expires_in":60"#, 60),
            (#""user_code":"AB",\#(uri),"expires_in":"60""#, 60), (#""user_code":"AB",\#(uri)"#, 300),
            // Incomplete, or without a web address.
            ("", nil), (#""user_code":"AB","verification_uri":"javascript:alert(1)","expires_in":10"#, nil),
            (#""user_code":"A\u001b[2J",\#(uri),"expires_in":10"#, nil),
            (#""user_code":"AB",\#(uri),"expires_in":0"#, nil), (#""user_code":"AB",\#(uri),"expires_in":"soon""#, nil),
        ] as [(String, Int?)] {
            let first = try effect(of: members.isEmpty ? "{}" : #"{"device_code":"d",\#(members)}"#)
            switch (first, lifetime) {
            case (.show(let code)?, let lifetime?):
                #expect(code.address.text == "https://login.example.com/d" && code.lifetime == .seconds(lifetime))
            case (.finished(.failure)?, nil): break
            default: Issue.record("\(members): \(String(describing: first))")
            }
        }
        for text in ["<html>", ""] {
            guard case .finished(.failure)? = try effect(of: text) else { throw NoAddress() }
        }
    }

    /// The effect of this response to the request for a code.
    private func effect(of text: String) throws -> DeviceGrant.Effect? {
        var grant = DeviceGrant(try provider(), scopes: [], start: start)
        _ = grant.handle(.begin, at: start)
        return grant.handle(.answered(.success(json(text))), at: start).first
    }
}

@Suite("Unusable responses")
struct UnusableResponseTests {
    @Test(
        "the error for a token response names the member",
        arguments: [
            (#"{"access_token":"a"}"#, "“token_type” is missing"),
            (#"{"token_type":"bearer"}"#, "“access_token” is missing"),
            (#"{"access_token":7,"token_type":"bearer"}"#, "“access_token” is a number, and not a token"),
            (
                #"{"access_token":"a","token_type":"bearer","scope":["a"]}"#,
                "“scope” is a list, and not a text of scopes"
            ),
            (#"{"access_token":"a","token_type":"bearer","expires_in":-1}"#, "“expires_in” is no time"),
            ("\u{FEFF}{}", "status 200, and a body that is not JSON: a byte order mark at byte 0"),
        ]
    )
    func tokens(text: String, flaw: String) throws {
        var flow = RefreshFlow(try provider(), token: Secret("r"))
        guard case .finished(let outcome) = flow.handle(.success(json(text))) else { throw NoAddress() }
        #expect(outcome.kind == .unavailable(mayBeUsed: true))
        let error = try #require(outcome.outage)
        #expect(error.description.contains(" responds with something unusable: \(flaw); "), "\(error)")
    }

    @Test(
        "the provider check parses the issued device code",
        arguments: [
            (#"{"device_code":"d","user_code":"AB","expires_in":60}"#, "“verification_uri” is missing"),
            (
                #"{"device_code":"d","user_code":"AB","verification_uri":"https://a.example","expires_in":[]}"#,
                "“expires_in” is no time"
            ),
            (#"{"device_code":"d","user_code":"AB","verification_uri":"https://a.example","expires_in":60}"#, nil),
        ] as [(String, String?)]
    )
    func deviceCode(text: String, flaw: String?) throws {
        let check = ProviderCheck(provider: try provider(), redirect: "http://127.0.0.1:1/callback", scopes: [])
        let step = check.meaning(of: .success(json(text)), .deviceCode)
        #expect(step.outcome == (flaw == nil ? .works : .fails) && flaw.map(step.text.contains) != false, "\(step)")
    }

    @Test("a logout token may be for several clients")
    func logoutAudience() throws {
        let now = Date()
        let issuer = try #require(testIssuer)
        let claims = """
            {"iss":"\(issuer)","aud":["another","device-7"],"iat":\(Int(now.timeIntervalSince1970)),"jti":"1","sub":"ada",
            "events":{"http://schemas.openid.net/event/backchannel-logout":{}}}
            """
        let token = try LogoutToken(try verified(claims), issuer: issuer, clientID: "device-7", now: now)
        #expect(token.subject == "ada")
    }
}

@Suite("Outcomes of a refresh")
struct RefreshFlowTests {
    /// The outcome of these responses; `nil` if the request is sent again.
    private func meaning(
        _ answers: Result<HTTPResponse, HTTPError>...,
        mayBeUsed: Bool = false
    ) throws -> OutcomeKind? {
        var flow = RefreshFlow(try provider(), token: Secret("r1"), mayBeUsed: mayBeUsed)
        var last: OutcomeKind?
        for answer in answers {
            if case .finished(let outcome) = flow.handle(answer) { last = outcome.kind }
        }
        return last
    }

    @Test("each response has its outcome")
    func table() throws {
        for (answer, expected) in [
            (.success(tokens), .renewed),
            (oauthError("invalid_grant"), .sessionOver), (.success(json("", status: 400)), .sessionOver),
            (.success(json("", status: 401)), .sessionOver),
            (oauthError("interaction_required"), .reauthenticationNeeded),
            (oauthError("login_required"), .reauthenticationNeeded),
            (oauthError("invalid_client", status: 401), .misconfigured),
            (oauthError("unauthorized_client"), .misconfigured), (.success(json("", status: 403)), .misconfigured),
            (oauthError("invalid_scope"), .scopeRefused),
            // HTML pages, server failures, overload and malformed JSON end no session.
            (.success(json("<html>", status: 401)), .unavailable(mayBeUsed: true)),
            (.success(json("<html>")), .unavailable(mayBeUsed: true)),
            (.success(json("{}")), .unavailable(mayBeUsed: true)),
            (oauthError("invalid_grant", status: 500), .unavailable(mayBeUsed: true)),
            (.success(json("", status: 429)), .unavailable(mayBeUsed: false)),
            (failure(.unreachable("no route")), .unavailable(mayBeUsed: false)),
            (failure(.untrusted("expired")), .unavailable(mayBeUsed: false)),
        ] as [(Result<HTTPResponse, HTTPError>, OutcomeKind)] { #expect(try meaning(answer) == expected, "\(answer)") }
    }

    @Test("a missing scope grants the request, an empty one nothing, a malformed one fails")
    func scopes() throws {
        func outcome(_ scope: String?) throws -> RefreshOutcome {
            var flow = RefreshFlow(try provider(), token: Secret("r1"))
            let member = scope.map { #","scope":\#($0)"# } ?? ""
            let answer = json(#"{"access_token":"a","token_type":"bearer"\#(member)}"#)
            guard case .finished(let outcome) = flow.handle(.success(answer)) else { throw NoAddress() }
            return outcome
        }
        for (scope, granted) in [(nil, nil), ("null", nil), (#""""#, []), (#""b  a""#, ["a", "b"])]
            as [(String?, Set<String>?)]
        {
            #expect(try outcome(scope).tokens.scopes == granted, "\(scope ?? "-")")
        }
        for scope in [
            #"["openid"]"#, "7", "true", "{}", #""openid \u00e9""#, #""a\nb""#, #""a\\b""#, #""\u0000""#,
        ] { #expect(try outcome(scope).kind == .unavailable(mayBeUsed: true), "\(scope)") }
    }

    @Test("a lost response is requested once more; a refusal then leaves a use possible")
    func lostAnswer() throws {
        for lost in [failure(.timedOut), failure(.redirected)] {
            #expect(try meaning(lost) == nil)
            #expect(try meaning(lost, lost) == .unavailable(mayBeUsed: true))
        }
        #expect(try meaning(failure(.brokenOff("cut")), .success(tokens)) == .renewed)
        for (refusal, afterKnownLoss, afterLoss) in [
            // The token may have been used, so the provider's refusal of it ends no session.
            (oauthError("invalid_grant"), .reauthenticationNeeded, .reauthenticationNeeded),
            (oauthError("invalid_client", status: 401), .unavailable(mayBeUsed: true), .unavailable(mayBeUsed: true)),
            (oauthError("unauthorized_client"), .unavailable(mayBeUsed: true), .unavailable(mayBeUsed: true)),
            (oauthError("unsupported_grant_type"), .unavailable(mayBeUsed: true), .unavailable(mayBeUsed: true)),
            (.success(json("", status: 403)), .unavailable(mayBeUsed: true), .unavailable(mayBeUsed: true)),
            // A caller that knows of the loss loses only this request.
            (oauthError("invalid_scope"), .scopeRefused, .unavailable(mayBeUsed: true)),
        ] as [(Result<HTTPResponse, HTTPError>, OutcomeKind, OutcomeKind)] {
            #expect(try meaning(refusal, mayBeUsed: true) == afterKnownLoss, "\(refusal)")
            #expect(try meaning(failure(.timedOut), refusal) == afterLoss, "\(refusal)")
        }
    }

    @Test("a refresh sends token and requested scopes; an error has Retry-After, no page")
    func request() throws {
        let plain = RefreshFlow(try provider(), token: Secret("r1")).begin()
        #expect(form(plain) == ["grant_type": "refresh_token", "refresh_token": "r1", "client_id": "device-7"])
        #expect(plain.limits.connect == .seconds(5) && plain.limits.total == .seconds(10))
        let scoped = RefreshFlow(try provider(), token: Secret("r1"), scopes: ["openid", "mail"]).begin()
        #expect(form(scoped)["scope"] == "openid mail")
        var flow = RefreshFlow(try provider(), token: Secret("r1"))
        let answer = json("", status: 503, fields: ["retry-after": "70"])
        guard case .finished(let outcome) = flow.handle(.success(answer)) else { throw NoAddress() }
        #expect(outcome.outage?.retryAfter == .seconds(70))
        guard case .finished(let second) = flow.handle(.success(json("<html>Maintenance"))) else { throw NoAddress() }
        #expect(second.outage?.description.contains("Maintenance") == false)
    }
}
