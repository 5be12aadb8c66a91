import Basics
import Cryptography
import DBus
import Foundation
import Identity
import NotifyCenterTestKit
import SharedDevice
import Synchronization
import Testing

@testable import EmbeddedIdentity

@Suite("Tokens of the device's own directory")
struct TokenTests {
    static let start = Date(timeIntervalSince1970: 1_800_000_000)

    private let temporary: TemporaryDirectory
    private let directory: UserDirectory
    private let clock = TestClock(TokenTests.start)
    private let ada: Account

    init() throws {
        temporary = try TemporaryDirectory()
        directory = try temporary.users()
        ada = try directory.add(username: "ada", password: Secret("correct horse")).account
    }

    private func provider(_ directory: UserDirectory? = nil) throws -> EmbeddedIdentityProvider {
        try EmbeddedIdentityProvider(directory: directory ?? self.directory, date: { [clock] in clock.now })
    }

    private func token(
        _ provider: EmbeddedIdentityProvider,
        _ scopes: Set<String> = ["orders.read"]
    ) async throws -> String { try await provider.issueToken(for: ada, scopes: scopes).value }

    private func check(_ token: String, _ provider: EmbeddedIdentityProvider) throws -> VerifiedToken {
        let published = try #require(provider.signingKeys)
        return try JSONWebKeySet(parsing: Array(published.utf8)).verify(CompactSignature(parsing: token))
    }

    private func issuer(_ provider: EmbeddedIdentityProvider) throws -> String {
        let published = try #require(provider.signingKeys)
        let json = try JSONValue(parsing: Array(published.utf8), limits: JSONLimits(size: 65_536))
        return try #require(json["issuer"]?.string)
    }

    @Test("a token has all its claims, and the published keys verify it")
    func claims() async throws {
        let provider = try provider()
        let issued = try await provider.issueToken(for: ada, scopes: ["openid", "orders.read"])
        let verified = try check(issued.value, provider)
        #expect(verified.type == "at+jwt" && verified.algorithm == .es256)
        let claims = verified.claims
        let issuer = try issuer(provider)
        #expect(issuer.hasPrefix("urn:uuid:"))
        let texts = ["iss", "aud", "sub", "scope", "client_id"].map { claims[$0]?.string }
        #expect(texts == [issuer, issuer, ada.identifier, "openid orders.read", "shared-device"])
        #expect(claims["iat"]?.number == 1_800_000_000 && claims["exp"]?.number == 1_800_003_600)
        #expect(issued.expiresAt == Self.start.addingTimeInterval(3600) && issued.scopes == ["openid", "orders.read"])
        let other = try check(await token(provider), provider).claims
        #expect(claims["jti"]?.string?.isEmpty == false && claims["jti"] != other["jti"])
        #expect(!"\(issued) \(String(reflecting: issued))".contains(issued.value))
    }

    @Test("the audience is the one service in the scopes")
    func audience() async throws {
        let provider = try provider()
        let issuer = try issuer(provider)
        for (scopes, audience) in [
            (["https://orders.example/read", "openid"], "https://orders.example"),
            (["api://orders/v1/read", "api://orders/v1/write"], "api://orders/v1"),
            (["https://graph.example/.default"], "https://graph.example"), (["orders/read"], issuer),
            (["https://orders.example"], issuer),
        ] {
            let claims = try check(await token(provider, Set(scopes)), provider).claims
            #expect(claims["aud"]?.string == audience, "\(scopes)")
        }
        let error = await #expect(throws: IdentityError.self) {
            try await token(provider, ["https://a.example/read", "https://b.example/read"])
        }
        #expect(error?.code == .invalidScope)
        #expect(error?.description.contains("https://a.example, https://b.example") == true)
    }

    @Test("issuer, key and tokens stay valid after a restart")
    func restart() async throws {
        let before = try provider()
        let token = try await token(before)
        let after = try provider(temporary.users())
        #expect(after.signingKeys == before.signingKeys)
        #expect(try check(token, after).claims["sub"]?.string == ada.identifier)
    }

    @Test("the secret half is neither published nor logged")
    func secrecy() throws {
        let published = try #require(provider().signingKeys)
        #expect(!published.contains(#""d""#))
        let key = SigningKey()
        var dumped = ""
        dump(key, to: &dumped)
        #expect(!(dumped + "\(key)" + String(reflecting: key)).contains(Base64URL.encode(key.secret)))
        #expect(SigningKey(secret: key.secret)?.identifier == key.identifier)
        #expect(SigningKey(secret: []) == nil)
    }

    @Test("the key identifier is the thumbprint of the public half")
    func thumbprint() throws {
        let json = SigningKey().publicKey
        let members = ["crv", "kty", "x", "y"].map { "\"\($0)\":\"\(json[$0]?.string ?? "")\"" }
        let digest = Digest.sha256.hash(Array("{\(members.joined(separator: ","))}".utf8))
        #expect(json["kid"]?.string == Base64URL.encode(digest))
    }
}

/// A clock that only the test advances.
final class TestClock: Sendable {
    private let date: Locked<Date>

    init(_ date: Date) { self.date = Locked(date) }

    var now: Date { date.withLock { $0 } }
    func advance(by seconds: TimeInterval) { date.withLock { $0 += seconds } }
}

extension CompactSignature {
    /// The signed header: the algorithm, the type and the key's identifier.
    var header: String { String(decoding: signedBytes.prefix { $0 != UInt8(ascii: ".") }, as: UTF8.self) }
}
