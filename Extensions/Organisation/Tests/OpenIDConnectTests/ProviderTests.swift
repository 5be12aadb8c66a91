import Basics
import Cryptography
import FoundationEssentials
import HTTPClient
import Identity
import OpenIDConnect
import Testing

@Suite("Caches of the provider's metadata and keys")
struct ProviderTests {
    private let start = ContinuousClock.now
    private let outage = IdentityError(.providerUnavailable, "down")

    @Test("an issuer is an https address without a query, and is compared byte for byte")
    func issuers() {
        #expect(Issuer("https://login.example.com") != Issuer("https://login.example.com/"))
        #expect(Issuer("http://localhost:4593/api/oidc") != nil)
        for text in [
            "http://login.example.com", "https://login.example.com?a=b", "https://login.example.com/#x", "login", "",
        ] { #expect(Issuer(text) == nil, "\(text)") }
        let (base, openID) = ("https://login.example.com", ".well-known/openid-configuration")
        for (issuer, configuration, server) in [
            (testIssuer, "/realm/\(openID)", "/realm"), (Issuer(base + "/"), "/\(openID)", ""),
            (Issuer(base), "/\(openID)", ""),
        ] {
            #expect(issuer?.configurationAddress?.text == base + configuration)
            let expected = "\(base)/.well-known/oauth-authorization-server\(server)"
            #expect(issuer?.authorizationServerAddress?.text == expected)
        }
    }

    @Test("metadata is cached for the provider's time, between 5 minutes and a day")
    func ages() throws {
        let metadata = try provider().metadata
        for (age, expected) in [
            (nil, 3600), (.seconds(1), 300), (.zero, 300), (.seconds(600), 600), (.seconds(1_000_000), 86_400),
        ] as [(Duration?, Int)] {
            var cache = MetadataCache()
            #expect(cache.decision(at: start) == .fetch)
            cache.read(metadata, age: age, at: start)
            #expect(cache.decision(at: start + .seconds(expected - 1)) == .use(metadata))
            #expect(cache.decision(at: start + .seconds(expected)) == .fetch)
        }
        #expect(json("", fields: ["cache-control": "public, max-age=600"]).maximumAge == .seconds(600))
        #expect(json("", fields: ["cache-control": "no-store, max-age=600"]).maximumAge == .zero)
        #expect(json("", fields: ["cache-control": "max-age=x"]).maximumAge == nil)
    }

    @Test("old metadata serves for 7 days of outage, but not if the issuer differs")
    func failures() throws {
        let metadata = try provider().metadata
        var cache = MetadataCache()
        cache.failed(outage, at: start)
        #expect(cache.decision(at: start + .seconds(59)) == .fail(outage))
        #expect(cache.decision(at: start + .seconds(60)) == .fetch)
        cache.read(metadata, age: .seconds(300), at: start)
        cache.failed(outage, at: start + .seconds(400))
        #expect(cache.decision(at: start + .seconds(401)) == .use(metadata))
        #expect(cache.decision(at: start + .seconds(460)) == .fetch)
        let late = start + .seconds(7 * 86_400)
        cache.failed(outage, at: late)
        #expect(cache.decision(at: late) == .fail(outage))
        cache.read(metadata, age: .seconds(300), at: start)
        let other = IdentityError(.providerMisconfigured, "another name")
        cache.failed(other, at: start + .seconds(400))
        #expect(cache.decision(at: start + .seconds(401)) == .fail(other))
    }

    @Test("keys are valid for an hour, and each need reads them once a minute at most")
    func keys() throws {
        let unknown = try UnknownKey()
        var cache = KeyCache()
        #expect(cache.verify(unknown.token, at: start) == .fetch)
        cache.willFetch(at: start)
        #expect(cache.verify(unknown.token, at: start) == .unavailable)
        cache.read(unknown.keys, at: start)
        #expect(cache.verify(unknown.token, at: start + .seconds(59)) == unknown.verdict)
        #expect(cache.verify(unknown.token, at: start + .seconds(60)) == .fetch)
        cache.willFetch(at: start + .seconds(60))
        #expect(cache.verify(unknown.token, at: start + .seconds(61)) == unknown.verdict)
        #expect(cache.verify(unknown.token, at: start + .seconds(3600)) == .fetch)
        cache.willFetch(at: start + .seconds(3600))
        #expect(cache.verify(unknown.token, at: start + .seconds(3601)) == .unavailable)
        // Each need has its own minute; messages wait for the minutes of all needs.
        var others = KeyCache()
        func verdict(_ seconds: Int, _ need: KeyNeed) -> KeyCache.Verdict {
            others.verify(unknown.token, at: start + .seconds(seconds), for: need)
        }
        others.willFetch(at: start, for: .preparation)
        others.read(unknown.keys, at: start)
        #expect(verdict(0, .message) == unknown.verdict)
        #expect(verdict(0, .answer) == .fetch)
        others.willFetch(at: start + .seconds(59), for: .answer)
        #expect(verdict(60, .answer) == unknown.verdict)
        #expect(verdict(60, .message) == unknown.verdict)
        #expect(verdict(119, .message) == .fetch)
        others.willFetch(at: start + .seconds(119), for: .message)
        #expect(verdict(119, .answer) == .fetch)
        #expect(others.readiness(at: start + .seconds(3600)) == .fetch)
    }

    @Test("configured addresses replace missing ones; an error names missing metadata")
    func overrides() throws {
        let issuer = try #require(testIssuer)
        let token = try #require(HTTPAddress("https://login.example.com/other"))
        let text = #"{"issuer":"\#(issuer)","token_endpoint":"https://login.example.com/t"}"#
        let document = try ProviderDocument(json(text), of: issuer)
        #expect(document.isIncomplete)
        #expect(throws: IdentityError.self) { try ProviderMetadata([document], issuer: issuer) }
        let overrides = ["token_endpoint": token, "jwks_uri": token]
        let metadata = try ProviderMetadata([document], issuer: issuer, overrides: overrides)
        #expect(metadata.tokenEndpoint == token && metadata.keysAddress == token)
        let error = #expect(throws: IdentityError.self) { try ProviderDocument(json("", status: 404), of: issuer) }
        let address = "https://login.example.com/realm/.well-known/openid-configuration"
        let wanted = "responds with something unusable: status 404 at \(address)"
        #expect(error?.description.contains(wanted) == true, "\(String(describing: error))")
    }
}

@Suite("Security event tokens")
struct EventTokenTests {
    private let now = Date(timeIntervalSince1970: 1_800_000_000)
    private let issuer = "https://login.example.com/realm"

    private func event(_ claims: String, type: String? = "secevent+jwt") throws -> SecurityEventToken {
        let all = #"{"iss":"\#(issuer)","aud":"device-7","iat":1799999000,"jti":"j"\#(claims)}"#
        let token = try verified(all, type: type)
        return try SecurityEventToken(token, issuer: #require(testIssuer), audience: "device-7", now: now)
    }

    @Test("a security event token has its event and its subject; an invalid one is rejected")
    func events() throws {
        let schemas = "https://schemas.openid.net/secevent/"
        let ada = #""sub_id":{"format":"iss_sub","iss":"\#(issuer)","sub":"ada"}"#
        let names: [(String, SecurityEventToken.Event)] = [
            ("caep/event-type/session-revoked", .sessionRevoked),
            ("risc/event-type/account-disabled", .accountDisabled),
            ("risc/event-type/account-purged", .accountPurged), ("risc/event-type/sessions-revoked", .sessionsRevoked),
            ("caep/event-type/credential-change", .credentialChange),
            ("caep/event-type/device-compliance-change", .deviceComplianceChange),
            ("ssf/event-type/verification", .verification),
        ]
        for (name, expected) in names {
            let token = try event(#","events":{"\#(schemas)\#(name)":{},"https://example.com/other":{}},\#(ada)"#)
            #expect(token.events == [expected] && token.subject == "ada" && token.identifier == "j")
        }
        // A type ignores case and the prefix application/.
        for type in ["SecEvent+JWT", "application/secevent+jwt"] {
            #expect(try event(#","events":{"x":{}}"#, type: type).identifier == "j")
        }
        let complex = #""sub_id":{"format":"complex","user":{"format":"iss_sub","iss":"\#(issuer)","sub":"ada"}}"#
        #expect(try event(#","events":{"x":{}},\#(complex)"#).subject == "ada")
        let stranger = #""sub_id":{"format":"iss_sub","iss":"https://example.com","sub":"ada"}"#
        #expect(try event(#","events":{"x":{}},\#(stranger)"#).subject == nil)
        for (claims, type) in [
            (#","events":{"x":{}},"exp":1900000000"#, "secevent+jwt"),
            (#","events":{"x":{}},"sub":"ada""#, "secevent+jwt"), (#","events":{}"#, "secevent+jwt"),
            ("", "secevent+jwt"), (#","events":{"x":{}}"#, "JWT"), (#","events":{"x":{}}"#, nil),
        ] as [(String, String?)] {
            #expect(throws: IdentityError.self, "\(claims), \(type ?? "-")") { try event(claims, type: type) }
        }
    }

    @Test("an identifier is accepted once in ten minutes, and a thousand are remembered")
    func seen() {
        var seen = SeenIdentifiers()
        let start = ContinuousClock.now
        func take(_ identifier: String, _ seconds: Int) -> Bool {
            seen.take(identifier, at: start + .seconds(seconds))
        }
        #expect(take("a", 0))
        #expect(!take("a", 600))
        #expect(take("a", 601))
        for number in 0..<999 { #expect(take("\(number)", 602)) }
        #expect(!take("a", 602))
        #expect(take("one more", 602))
        #expect(take("a", 602))
    }
}
