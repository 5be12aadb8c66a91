import DeviceConfiguration
import DeviceStorage
import Foundation
import Identity
import NotifyCenterTestKit
import SharedDevice
import Testing

@testable import BrokerCore
@testable import SharedDeviceBroker

@Suite("Stored data of the organisation's provider")
struct ProviderRowsTests {
    private let directory: TemporaryDirectory
    private let now = Moment(wall: Date(timeIntervalSince1970: 1_000_000), uptime: .seconds(1000))
    private let state = DeviceState(mode: .shared, account: .named("ada"), epoch: 7)

    init() throws { directory = try TemporaryDirectory() }

    private func store(_ byte: UInt8? = 1) throws -> DeviceStore {
        let vault = try byte.map { try RecordVault(secret: Array(repeating: $0, count: 32)) }
        return try DeviceStore(database: DeviceDatabase(directory: directory.state), sealer: vault)
    }

    private var session: ProviderSession {
        ProviderSession(
            issuer: "https://login.example",
            client: "device",
            record: .adas,
            checkedAt: now.wall,
            provedAt: now.wall - 60,
            beganAt: now.wall - 90,
            needsPerson: true,
            isSettled: true
        )
    }

    /// Commits a sign-in, and the pending end of an earlier user's session in the outbox.
    private func signIn(_ store: DeviceStore) throws {
        var batch = Batch(number: 1)
        batch.device = state
        batch.provider = session
        batch.providerOwner = state
        let end = ProviderOutbox.Entry(record: .adas, keepsSession: true, addedAt: now.wall, tries: 2, next: now.uptime)
        batch.outbox = [3: end]
        try store.commit(batch)
    }

    @Test("session and outbox are sealed on disk, read back, and erased with the sign-out")
    func kept() throws {
        let store = try store()
        try signIn(store)
        let content = try self.store().load(at: now)
        #expect(content.provider == session && content.recordProblems.isEmpty)
        #expect(content.outbox[3]?.record == .adas && content.outbox[3]?.tries == 2)
        #expect(content.outbox[3]?.keepsSession == true)
        try directory.expectNone(of: "refresh-token-of-ada", "sid-of-ada", "subject-of-ada")
        let stored: [UInt8]? = try SQLiteConnection(path: directory.databaseFile, .read)
            .value("SELECT record FROM provider_session")
        let sealed = try #require(stored)
        #expect(try directory.contains(sealed), "the test would see no erasure")
        var batch = Batch(number: 2)
        batch.device = state.next(mode: .shared, account: nil)
        batch.provider = .some(nil)
        batch.outbox = [3: nil]
        try store.commit(batch)
        store.database.eraseRemnants()
        let rest = try store.load(at: now)
        #expect(rest.provider == nil && rest.outbox.isEmpty)
        #expect(try !directory.contains(sealed))
    }

    @Test("a record of another session is not restored")
    func otherSession() throws {
        try signIn(try store())
        try directory.sql("UPDATE device SET epoch = 9")
        #expect(try store().load(at: now).provider == nil)
        try directory.sql("UPDATE provider_session SET epoch = 9")
        let content = try store().load(at: now)
        #expect(content.provider?.record == nil && content.recordProblems.count == 1)
    }

    @Test(
        "a damaged row is logged, and the session stays",
        arguments: ["record = x'00'", "record = zeroblob(4000)", "checked_at = 9e300", "issuer = x'FF'"]
    )
    func damaged(_ change: String) throws {
        try signIn(try store())
        try directory.sql("UPDATE provider_session SET \(change)")
        let content = try store().load(at: now)
        #expect(content.provider?.record == nil && content.device == state && !content.recordProblems.isEmpty)
    }

    @Test("a damaged number of attempts does not crash the broker")
    func damagedTries() throws {
        try signIn(try store())
        try directory.sql("UPDATE provider_end SET tries = 9223372036854775807")
        var outbox = ProviderOutbox(entries: try store().load(at: now).outbox)
        #expect(outbox.takeDue(isCommitted: true, at: now.uptime)?.number == 3)
        #expect(outbox.ended(3, mayWork: true, at: now) == .again(after: .seconds(3600)))
    }

    @Test("without the key records are neither read nor stored, and the session stays")
    func otherKey() throws {
        try signIn(try store())
        for key in [2, nil] as [UInt8?] {
            let content = try store(key).load(at: now)
            #expect(content.provider?.checkedAt == now.wall && content.provider?.record == nil)
            #expect(content.outbox.isEmpty && content.recordProblems.count == 2)
        }
        try signIn(try store(nil))
        let content = try store().load(at: now)
        #expect(content.device == state && content.provider != nil && content.provider?.record == nil)
        #expect(content.outbox.isEmpty && content.recordProblems.isEmpty)
    }
}
