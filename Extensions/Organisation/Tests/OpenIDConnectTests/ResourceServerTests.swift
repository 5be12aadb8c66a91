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
    @Test("a valid token gets its account's orders if its scope and the keys are there")
    func good() async throws {
        let service = try await OrdersService()
        let token = try await service.token()
        let answer = try await service.answer(token)
        #expect(answer.status == 200)
        #expect(String(decoding: answer.body, as: UTF8.self).contains(service.ada.identifier))
        let other = try await service.answer(service.token("profile"))
        #expect(other.status == 403 && other.error == "insufficient_scope")
        #expect(try await service.answer(nil).status == 401)
        let whole = try String(contentsOfFile: service.keys, encoding: .utf8)
        try FileManager.default.removeItem(atPath: service.keys)
        #expect(try await service.answer(token).status == 503)
        let flawed = [String(whole.prefix(whole.count / 2)), "", "[]", "{}", #"{"issuer":"x","keys":[5]}"#]
        for (text, status) in flawed.map({ ($0, 503) }) + [(whole, 200)] {
            try text.write(toFile: service.keys, atomically: true, encoding: .utf8)
            #expect(try await service.answer(token).status == status, "\(text)")
        }
    }

    @Test("a token for another service is refused")
    func wrongAudience() async throws {
        let service = try await OrdersService([
            "--audience", "https://orders.example", "--scope", "https://orders.example/read",
        ])
        for (scope, status) in [
            ("https://orders.example/read", 200), ("https://stock.example/read", 401), ("read", 401),
        ] { #expect(try await service.answer(service.token(scope)).status == status, "\(scope)") }
    }

    @Test("an expired, forged, changed or malformed token is refused")
    func refused() async throws {
        let service = try await OrdersService()
        // The keys are still valid: the service refuses the expiry, not an unknown key.
        #expect(try await service.answer(service.token(age: 300)).status == 200)
        let expired = try await service.answer(service.token(age: 3900))
        #expect(expired.status == 401 && expired.error == "invalid_token")
        #expect(String(decoding: expired.body, as: UTF8.self).contains("expired"))

        let good = try await service.token()
        let parts = good.split(separator: ".").map(String.init)
        let claims = try JSONValue(
            parsing: try #require(Base64URL.decode(parts[1].utf8)),
            limits: JSONLimits(size: 65_536)
        )
        let published = try #require(service.provider.signingKeys)
        let kid = try #require(JSONWebKeySet(parsing: Array(published.utf8)).keys.first?.identifier)
        func header(_ algorithm: String) -> String {
            Base64URL.encode(#"{"alg":"\#(algorithm)","kid":"\#(kid)","typ":"at+jwt"}"#.utf8)
        }
        let foreign = try SigningKey().sign(claims, type: "at+jwt").split(separator: ".").map(String.init)
        var richer = try #require(claims.object)
        richer["scope"] = .string("orders.read orders.write")
        let changed = Base64URL.encode(JSONValue.object(richer).text.utf8)
        let forged = [
            ("another key", foreign.joined(separator: ".")),
            ("another key under this one's name", [header("ES256"), parts[1], foreign[2]].joined(separator: ".")),
            ("none", header("none") + "." + parts[1] + "."),
            ("none, with a signature", [header("none"), parts[1], parts[2]].joined(separator: ".")),
            ("a shared secret", [header("HS256"), parts[1], parts[2]].joined(separator: ".")),
            ("changed", [parts[0], changed, parts[2]].joined(separator: ".")),
            ("another kind", try SigningKey().sign(claims, type: "JWT")), ("nothing", "x"),
        ]
        // Headers with wrong types.
        let malformed = [
            #"{"alg":"ES256","kid":"x","typ":5}"#, #"{"alg":"ES256","kid":["x"],"typ":"at+jwt"}"#,
            #"{"alg":7,"typ":"at+jwt"}"#, #"{"alg":"ES256"}"#, "[]", "5", String(repeating: "[", count: 5000),
        ].map { ("\($0.prefix(50))", "\(Base64URL.encode($0.utf8)).\(parts[1]).\(parts[2])") }
        for (name, token) in forged + malformed {
            let answer = try await service.answer(token)
            #expect(answer.status == 401 && answer.error == "invalid_token", "\(name): \(answer.status)")
        }
        #expect(try await service.answer(good).status == 200)
    }

    @Test("after a failed reading of the provider's keys, the service soon reads them again")
    func providerRecovers() async throws {
        let provider = try await FaultyProvider.shared.value
        let server = try await ResourceServer(
            ["--issuer", provider.issuer("discovery-retry-after.orders")],
            environment: ["SSL_CERT_FILE": provider.trustAnchors]
        )
        // The signature belongs to no key: with keys the service refuses it, without keys it cannot judge it.
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

/// The service, and an embedded provider that publishes its keys to the service's file.
private struct OrdersService {
    private let directory: TemporaryDirectory
    private let server: ResourceServer
    private let clock: TokenClock
    let provider: EmbeddedIdentityProvider
    let ada: Account
    let keys: String

    init(_ arguments: [String] = []) async throws {
        directory = try TemporaryDirectory("resource-server")
        let users = UserDirectory(
            database: try DeviceDatabase(directory: directory.path + "/state"),
            passwordCost: .minimal
        )
        ada = try users.add(username: "ada", password: Secret("correct horse")).account
        let (keys, clock) = (directory.path + "/keys.json", TokenClock())
        provider = try EmbeddedIdentityProvider(
            directory: users,
            publish: { text in _ = FileManager.default.createFile(atPath: keys, contents: Data(text.utf8)) },
            date: { clock.now }
        )
        (self.keys, self.clock) = (keys, clock)
        server = try await ResourceServer(["--keys", keys] + arguments)
    }

    /// A token that was issued this number of seconds ago.
    func token(_ scope: String = "orders.read", age: TimeInterval = 0) async throws -> String {
        clock.turnBack(by: age)
        defer { clock.turnBack(by: -age) }
        return try await provider.issueToken(for: ada, scopes: [scope]).value
    }

    func answer(_ token: String?) async throws -> HTTPResponse { try await server.orders(token) }
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
    private let date = Locked(Date())

    var now: Date { date.withLock { $0 } }
    func turnBack(by seconds: TimeInterval) { date.withLock { $0 -= seconds } }
}
