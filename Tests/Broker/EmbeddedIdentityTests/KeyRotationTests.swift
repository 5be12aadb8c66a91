import Basics
import Cryptography
import DBus
import DeviceStorage
import Foundation
import Identity
import NotifyCenterTestKit
import SharedDevice
import Synchronization
import Testing

@testable import EmbeddedIdentity

@Suite("Rotation of signing keys")
struct KeyRotationTests {
    private let temporary: TemporaryDirectory
    private let directory: UserDirectory
    private let clock = TestClock(TokenTests.start)
    private let ada: Account
    private let services = Services()

    init() throws {
        temporary = try TemporaryDirectory()
        directory = try temporary.users()
        ada = try directory.add(username: "ada", password: Secret("correct horse")).account
    }

    /// Records the keys that are published to services, and the problems that are logged.
    private final class Services: Sendable {
        private let state = Locked((texts: [String](), problems: [String?](), isFull: false))

        var texts: [String] { state.withLock { $0.texts } }
        var problems: [String?] { state.withLock { $0.problems } }
        func fill(_ isFull: Bool) { state.withLock { $0.isFull = isFull } }
        func report(_ problem: String?) { state.withLock { $0.problems.append(problem) } }

        func publish(_ text: String) throws(StoreError) {
            let isFull = state.withLock { state in
                if !state.isFull { state.texts.append(text) }
                return state.isFull
            }
            if isFull { throw StoreError(.noSpace, attempted: "give out the keys", message: "no space") }
        }
    }

    private func provider() throws -> EmbeddedIdentityProvider {
        try EmbeddedIdentityProvider(
            directory: directory,
            publish: { [services] text throws(StoreError) in try services.publish(text) },
            report: { [services] in services.report($0) },
            date: { [clock] in clock.now }
        )
    }

    private func token(_ provider: EmbeddedIdentityProvider) async throws -> CompactSignature {
        let token = try await provider.issueToken(for: ada, scopes: ["orders.read"])
        return try CompactSignature(parsing: token.value)
    }

    private func keys(_ text: String?) throws -> JSONWebKeySet {
        try JSONWebKeySet(parsing: Array(#require(text).utf8))
    }

    /// Whether these keys verify the token, as Ada's.
    private func isAdas(_ token: CompactSignature, by text: String?) throws -> Bool {
        try keys(text).verify(token).claims["sub"]?.string == ada.identifier
    }

    /// Makes the database reject new keys, as on a full disk.
    private func refuseKeys() throws {
        let trigger = "CREATE TRIGGER full BEFORE INSERT ON signing_key BEGIN SELECT RAISE(ABORT, 'no space'); END"
        try directory.execute(trigger)
    }

    private func takeKeys() throws { try directory.execute("DROP TRIGGER full") }

    private func secretKeys() throws -> [[UInt8]] {
        try directory.database.read("read the keys") { db in
            try db.rows("SELECT secret_key FROM signing_key WHERE secret_key IS NOT NULL") { $0["secret_key"] ?? [] }
        }
    }

    @Test("after 30 days a new key signs; the old one is published until its tokens end")
    func rotation() async throws {
        let provider = try provider()
        let secret = try #require(try secretKeys().first)
        clock.advance(by: 30 * 86_400 - 1)
        let last = try await token(provider)
        #expect(services.texts.count == 1)

        clock.advance(by: 1)
        let first = try await token(provider)
        #expect(first.header != last.header)
        // Services must have the new key before they see a token signed with it.
        #expect(services.texts.count == 2 && services.texts.last == provider.signingKeys)
        for token in [first, last] { #expect(try isAdas(token, by: provider.signingKeys)) }
        #expect(try !secretKeys().contains(secret) && !temporary.contains(secret))

        clock.advance(by: 69 * 60)
        #expect(try keys(provider.signingKeys).keys.count == 2)
        clock.advance(by: 2 * 60)
        #expect(try keys(provider.signingKeys).keys.count == 1)
        #expect(throws: SignatureError.self) { try keys(provider.signingKeys).verify(last) }
        _ = try await token(provider)
        #expect(try keys(services.texts.last).keys.count == 1)
        #expect(services.problems.isEmpty)
    }

    @Test("an expired key is withdrawn from services without any token request")
    func quietDevice() throws {
        let keys = try SigningKeys(
            directory: directory,
            now: clock.now,
            publish: { [services] text throws(StoreError) in try services.publish(text) },
            report: { [services] in services.report($0) }
        )
        for seconds: TimeInterval in [30 * 86_400, 71 * 60] {
            clock.advance(by: seconds)
            keys.tend(at: clock.now)
        }
        #expect(try services.texts.map { try self.keys($0).keys.count } == [1, 2, 1])
    }

    @Test("setting the clock back by more than ten minutes makes a new key")
    func clockSetBack() async throws {
        let provider = try provider()
        let before = try await token(provider)
        clock.advance(by: -500)
        #expect(try await token(provider).header == before.header)
        clock.advance(by: -86_400)
        #expect(try await token(provider).header != before.header)
    }

    @Test("a key with a retirement date in the future counts as retired now")
    func retiredInTheFuture() async throws {
        let first = try provider()
        let old = try await token(first)
        clock.advance(by: 30 * 86_400)
        _ = try await token(first)
        clock.advance(by: -20 * 86_400)
        _ = try await token(first)
        let provider = try provider()
        #expect(try isAdas(old, by: provider.signingKeys))
        clock.advance(by: 71 * 60)
        #expect(try keys(provider.signingKeys).keys.count == 1)
    }

    // MARK: Failures

    @Test("while the disk takes no key, the old one signs, and an expired one is withdrawn")
    func fullDisk() async throws {
        let old = try await token(provider())
        try refuseKeys()
        clock.advance(by: 31 * 86_400)
        let provider = try provider()
        for _ in 1...3 {
            #expect(try await token(provider).header == old.header)
            clock.advance(by: SigningKeys.patience)
        }
        #expect(services.problems.count == 1)
        #expect(services.problems.first??.contains("keep the keys that tokens are signed with") == true)
        try takeKeys()
        let new = try await token(provider)
        #expect(try new.header != old.header && isAdas(new, by: services.texts.last))
        #expect(services.problems.count == 2 && services.problems.last == .some(nil))
        // The next key expires without a successor.
        clock.advance(by: 30 * 86_400)
        _ = try await token(provider)
        try refuseKeys()
        clock.advance(by: 71 * 60)
        _ = try await token(provider)
        #expect(try keys(services.texts.last).keys.count == 1)
        #expect(services.problems.count == 3)
    }

    @Test("without any stored key the provider starts, but refuses tokens")
    func noKey() async throws {
        try refuseKeys()
        let provider = try provider()
        _ = try await provider.authenticate(SignInRequest(username: "ada", password: Secret("correct horse")))
        let error = await #expect(throws: IdentityError.self) { try await token(provider) }
        let isTold = error?.description.contains("keep the keys that tokens are signed with") == true
        #expect(error?.code == .providerFailed && isTold)
        #expect(try keys(provider.signingKeys).keys.isEmpty)
        try takeKeys()
        clock.advance(by: SigningKeys.patience)
        let first = try await token(provider)
        #expect(try isAdas(first, by: services.texts.last))
    }

    @Test(
        "a damaged row is replaced by a new key and logged",
        arguments: [
            "UPDATE signing_key SET secret_key = x'00'", "UPDATE signing_key SET made_at = 'never'",
            "UPDATE signing_key SET secret_key = 7",
        ]
    )
    func damaged(sql: String) async throws {
        let old = try await token(provider())
        try directory.execute(sql)
        let provider = try provider()
        let new = try await token(provider)
        #expect(try new.header != old.header && isAdas(new, by: services.texts.last))
        #expect(try keys(provider.signingKeys).keys.count == 1 && secretKeys().count == 1)
        #expect(services.problems.first??.contains("damaged") == true)
    }

    @Test("a new key signs once it is published; the first key signs at once")
    func noFile() async throws {
        services.fill(true)
        let provider = try provider()
        let first = try await token(provider)
        #expect(try isAdas(first, by: provider.signingKeys))
        #expect(services.texts.isEmpty && services.problems.count == 1)
        services.fill(false)
        clock.advance(by: SigningKeys.patience)
        _ = try await token(provider)
        #expect(services.texts == [provider.signingKeys])
        let old = try await token(provider)
        services.fill(true)
        clock.advance(by: 30 * 86_400)
        for _ in 1...2 { #expect(try await token(provider).header == old.header) }
        #expect(services.problems.count == 3)
        services.fill(false)
        clock.advance(by: SigningKeys.patience)
        let new = try await token(provider)
        #expect(try new.header != old.header && isAdas(new, by: services.texts.last))
        #expect(services.problems.last == .some(nil))
    }
}
