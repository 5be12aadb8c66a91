import Basics
import Cryptography
import DeviceStorage
import Foundation
import HTTPClient
import Identity
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization
import TestProviders
import Testing

@testable import EmbeddedIdentity

/// Tests the example service as a separate process with an independent library.
@Suite(
    "A service verifies tokens with the device's keys",
    .enabled(if: ResourceServer.canRun, "python3-jwt is not installed")
)
struct ResourceServerTests {
    private let temporary = Result { try TemporaryDirectory("resource-server") }
    private let clock = TokenClock(Date())

    /// A provider that publishes its keys to the server's file.
    private func device() throws -> (EmbeddedIdentityProvider, Account, keys: String) {
        let path = try temporary.get().path
        let directory = UserDirectory(database: try DeviceDatabase(directory: path + "/state"), passwordCost: .minimal)
        let ada = try directory.add(username: "ada", password: Secret("correct horse")).account
        let keys = path + "/keys.json"
        let provider = try EmbeddedIdentityProvider(
            directory: directory,
            publish: { text in _ = FileManager.default.createFile(atPath: keys, contents: Data(text.utf8)) },
            date: { [clock] in clock.now }
        )
        return (provider, ada, keys)
    }

    @Test("a valid token gets its account's orders; one without the scope is refused")
    func good() async throws {
        let (provider, ada, keys) = try device()
        let server = try await ResourceServer(keys: keys)
        let answer = try await server.orders(provider.issueToken(for: ada, scopes: ["orders.read"]).value)
        #expect(answer.status == 200)
        #expect(String(decoding: answer.body, as: UTF8.self).contains(ada.identifier))
        let other = try await server.orders(provider.issueToken(for: ada, scopes: ["profile"]).value)
        #expect(other.status == 403 && other.error == "insufficient_scope")
        #expect(try await server.orders(nil).status == 401)
    }

    @Test("a token for another service is refused")
    func wrongAudience() async throws {
        let (provider, ada, keys) = try device()
        let server = try await ResourceServer(
            keys: keys,
            ["--audience", "https://orders.example", "--scope", "https://orders.example/read"]
        )
        for (scope, status) in [
            ("https://orders.example/read", 200), ("https://stock.example/read", 401), ("read", 401),
        ] {
            let answer = try await server.orders(provider.issueToken(for: ada, scopes: [scope]).value)
            #expect(answer.status == status, "\(scope)")
        }
    }

    @Test("an expired token is refused")
    func expired() async throws {
        let (provider, ada, keys) = try device()
        let server = try await ResourceServer(keys: keys)
        clock.advance(by: -300)
        #expect(
            try await server.orders(provider.issueToken(for: ada, scopes: ["orders.read"]).value).status == 200
        )
        clock.advance(by: -3600)
        // The keys are still valid: the service refuses the expiry, not an unknown key.
        let old = try await provider.issueToken(for: ada, scopes: ["orders.read"]).value
        let answer = try await server.orders(old)
        #expect(answer.status == 401 && answer.error == "invalid_token")
        #expect(String(decoding: answer.body, as: UTF8.self).contains("expired"))
    }

    @Test("a forged or changed token is refused")
    func forged() async throws {
        let (provider, ada, keys) = try device()
        let server = try await ResourceServer(keys: keys)
        let good = try await provider.issueToken(for: ada, scopes: ["orders.read"])
            .value
        let parts = good.split(separator: ".").map(String.init)
        let claims = try JSONValue(
            parsing: try #require(Base64URL.decode(parts[1].utf8)),
            limits: JSONLimits(size: 65_536)
        )
        let published = try #require(provider.signingKeys)
        let kid = try #require(JSONWebKeySet(parsing: Array(published.utf8)).keys.first?.identifier)
        func header(_ algorithm: String) -> String {
            Base64URL.encode(#"{"alg":"\#(algorithm)","kid":"\#(kid)","typ":"at+jwt"}"#.utf8)
        }
        let stranger = SigningKey()
        let foreign = try stranger.sign(claims, type: "at+jwt").split(separator: ".").map(String.init)
        var richer = try #require(claims.object)
        richer["scope"] = .string("orders.read orders.write")
        let changed = Base64URL.encode(JSONValue.object(richer).text.utf8)
        for (name, token) in [
            ("another key", foreign.joined(separator: ".")),
            ("another key under this one's name", [header("ES256"), parts[1], foreign[2]].joined(separator: ".")),
            ("none", header("none") + "." + parts[1] + "."),
            ("none, with a signature", [header("none"), parts[1], parts[2]].joined(separator: ".")),
            ("a shared secret", [header("HS256"), parts[1], parts[2]].joined(separator: ".")),
            ("changed", [parts[0], changed, parts[2]].joined(separator: ".")),
            ("another kind", try SigningKey().sign(claims, type: "JWT")), ("nothing", "x"),
        ] {
            let answer = try await server.orders(token)
            #expect(answer.status == 401 && answer.error == "invalid_token", "\(name): \(answer.status)")
        }
        #expect(try await server.orders(good).status == 200)
    }

    @Test("a header with wrong types is refused")
    func malformed() async throws {
        let (provider, ada, keys) = try device()
        let server = try await ResourceServer(keys: keys)
        let good = try await provider.issueToken(for: ada, scopes: ["orders.read"])
        let rest = good.value.drop { $0 != "." }
        for header in [
            #"{"alg":"ES256","kid":"x","typ":5}"#, #"{"alg":"ES256","kid":["x"],"typ":"at+jwt"}"#,
            #"{"alg":7,"typ":"at+jwt"}"#, #"{"alg":"ES256"}"#, "[]", "5", String(repeating: "[", count: 5000),
        ] {
            let answer = try await server.orders(Base64URL.encode(header.utf8) + rest)
            #expect(answer.status == 401 && answer.error == "invalid_token", "\(header.prefix(50))")
        }
    }

    @Test("without readable keys every token gets status 503")
    func noKeys() async throws {
        let (provider, ada, keys) = try device()
        let server = try await ResourceServer(keys: keys)
        let token = try await provider.issueToken(for: ada, scopes: ["orders.read"])
        let whole = try String(contentsOfFile: keys, encoding: .utf8)
        try FileManager.default.removeItem(atPath: keys)
        #expect(try await server.orders(token.value).status == 503)
        for flawed in [String(whole.prefix(whole.count / 2)), "", "[]", "{}", #"{"issuer":"x","keys":[5]}"#] {
            try flawed.write(toFile: keys, atomically: true, encoding: .utf8)
            #expect(try await server.orders(token.value).status == 503, "\(flawed)")
        }
        try whole.write(toFile: keys, atomically: true, encoding: .utf8)
        #expect(try await server.orders(token.value).status == 200)
    }

    @Test("after a failed reading of the provider's keys, the service soon reads them again")
    func providerRecovers() async throws {
        let provider = try await FaultyProvider.shared.value
        let server = try await ResourceServer(
            ["--issuer", provider.issuer("discovery-retry-after.orders")],
            environment: ["SSL_CERT_FILE": provider.trustAnchors]
        )
        // Signed by nobody: with keys the service refuses it, without keys it can say nothing about it.
        let token = Base64URL.encode(#"{"alg":"ES256","kid":"x","typ":"at+jwt"}"#.utf8) + ".e30.AA"
        #expect(try await server.orders(token).status == 503)
        try await eventually(within: .seconds(20)) { try await server.orders(token).status == 401 }
    }
}

/// `Examples/ResourceServer` in another process.
struct ResourceServer {
    private static let script = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        .appendingPathComponent("../../../../Examples/ResourceServer/orders_service.py").standardized.path
    private let process: ChildProcess
    private let address: HTTPAddress
    /// The test checks responses, not how fast Python starts.
    private let client = HTTPClient(patience: 30)

    static var canRun: Bool {
        guard let probe = try? ChildProcess("/usr/bin/python3", ["-c", "import jwt, cryptography"]) else {
            return false
        }
        return probe.waitUntilExit() == 0
    }

    init(keys: String, _ arguments: [String] = []) async throws { try await self.init(["--keys", keys] + arguments) }

    init(_ arguments: [String], environment: [String: String] = [:]) async throws {
        process = try ChildProcess("/usr/bin/python3", [Self.script] + arguments, environment: environment)
        let port = try await process.line { Int($0) != nil }
        address = try #require(HTTPAddress("http://127.0.0.1:\(port)/orders"))
    }

    func orders(_ token: String?) async throws -> HTTPResponse {
        let fields = token.map { ["Authorization": "Bearer \($0)"] } ?? [:]
        return try await client.send(HTTPRequest(address, fields: fields))
    }
}

extension HTTPResponse {
    /// OAuth's error code in the response of a service.
    fileprivate var error: String? {
        let json = try? JSONValue(parsing: body, limits: JSONLimits(size: 65_536))
        return json?["error"]?.string
    }
}

/// The provider's wall clock.
private final class TokenClock: Sendable {
    private let date: Locked<Date>

    init(_ date: Date) { self.date = Locked(date) }

    var now: Date { date.withLock { $0 } }
    func advance(by seconds: TimeInterval) { date.withLock { $0 += seconds } }
}
