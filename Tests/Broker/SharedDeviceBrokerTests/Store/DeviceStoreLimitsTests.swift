import DeviceConfiguration
import DeviceStorage
import Dispatch
import EmbeddedIdentity
import Foundation
import Identity
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Testing

@testable import BrokerCore
@testable import SharedDeviceBroker

@Suite("Removal of old data, and operation on a full disk")
struct DeviceStoreLimitsTests {
    private let directory: TemporaryDirectory
    private let database: DeviceDatabase
    private let store: DeviceStore

    init() throws {
        directory = try TemporaryDirectory()
        database = try DeviceDatabase(directory: directory.state, firstEpoch: 0)
        store = try DeviceStore(database: database)
    }

    private let quentin = Account(identifier: "q.t", username: "xquentinx", displayName: "Xquentin")

    /// A ledger in which the account's session has ended and app "a" owes a cleanup.
    private func owed(_ account: Account? = nil) -> CleanupLedger {
        var ledger = CleanupLedger()
        ledger.begin(2, account: account ?? quentin, at: .at(0))
        _ = ledger.hold(2, by: "a", on: nil)
        ledger.end(2, at: .at(1))
        return ledger
    }

    private func entry(_ event: AuditEntry.Event, session: UInt64? = nil, _ detail: String) -> AuditEntry {
        AuditEntry(event: event, at: Moment.at(1).wall, session: session, app: "a", detail: detail)
    }

    private func append(_ entries: [AuditEntry], to store: DeviceStore) throws {
        var batch = Batch(number: 1)
        batch.log = entries
        try store.commit(batch)
    }

    private func details() throws -> [String] { try database.auditLog().compactMap(\.entry.detail) }

    private let signedOut = DeviceState(mode: .shared, account: nil, epoch: 3)

    private func signOut(_ store: DeviceStore) throws {
        var batch = Batch(number: 1)
        batch.device = signedOut
        try store.commit(batch)
    }

    // MARK: Names

    @Test("after the sign-out no file contains the account's name or identifier")
    func erasure() throws {
        try database.save(DeviceState(mode: .shared, account: .ada, epoch: 2))
        #expect(try directory.contains(Account.ada.username), "the test would see no erasure")
        // Another session in between moves the row within its page.
        try database.save(DeviceState(mode: .shared, account: nil, epoch: 3))
        try database.save(DeviceState(mode: .shared, account: .grace, epoch: 4))
        try database.save(DeviceState(mode: .shared, account: nil, epoch: 5))
        database.eraseRemnants()
        for account in [Account.ada, .grace] {
            try directory.expectNone(of: account.username, account.identifier)
        }
        try directory.expectNone(of: "Lovelace")
    }

    @Test("a concurrent reader delays the erasure, which is reported and made up for")
    func delayedErasure() async throws {
        let database = try DeviceDatabase(directory: directory.state, busyTimeout: .milliseconds(20), firstEpoch: 0)
        try database.save(DeviceState(mode: .shared, account: .ada, epoch: 2))
        let reader = try DeviceDatabase(directory: directory.state, firstEpoch: 0)
        try database.save(DeviceState(mode: .shared, account: .ada, epoch: 4))
        let (isReading, mayEnd) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        async let reading: Void = onThread {
            try reader.read("hold a transaction") { db in
                _ = try DeviceStore.device(db)
                isReading.signal()
                mayEnd.wait()
            }
        }
        await onThread { isReading.wait() }
        try database.save(DeviceState(mode: .shared, account: nil, epoch: 5))
        database.eraseRemnants()
        #expect(database.remnants?.code == .busy)
        #expect(try directory.contains(Account.ada.username))
        mayEnd.signal()
        try await reading
        database.eraseRemnants()
        #expect(database.remnants == nil)
        try directory.expectNone(of: Account.ada.username)
    }

    // S14
    @Test("a removed user's name is in no row and is not written again")
    func removedUser() throws {
        let users = UserDirectory(database: database, passwordCost: .minimal)
        let account = try users.add(username: "xquentinx", password: Secret("correct horse")).account
        var ledger = owed(account)
        let entry = AuditEntry(
            event: .signedIn,
            at: Moment.at(0).wall,
            session: 2,
            account: account.identifier,
            accountName: "xquentinx"
        )
        try store.save(&ledger, log: [entry])
        try users.remove(username: "xquentinx")
        try directory.expectNone(of: "xquentinx")
        // A running broker has the name in memory, and writes the round's row again.
        _ = ledger.expire(timeout: .seconds(1), at: .at(100))
        _ = ledger.tell("a", at: .at(101))
        try store.save(&ledger)
        let read = try store.load(at: .at(200)).ledger
        #expect(read.sessions[2]?.outcome == .expired && read.sessions[2]?.account == nil)
        try directory.expectNone(of: "xquentinx")
    }

    // MARK: The log

    // S2
    @Test("the log is cut from the oldest entries on, except those of open rounds")
    func cutLog() throws {
        let store = try DeviceStore(database: database, longestLog: 100_000)
        var ledger = owed()
        try store.save(&ledger, log: [entry(.held, session: 2, "open")])
        let words = String(repeating: "x", count: 200)
        for turn in 0..<10 {
            try append((0..<500).map { entry(.refused, "\(turn * 500 + $0) \(words)") }, to: store)
        }
        let details = try details()
        #expect(details.count < 1500 && details.first == "open")
        let numbers = details.dropFirst().compactMap { Int($0.prefix { $0 != " " }) }
        #expect(numbers.count == details.count - 1 && numbers == Array((numbers.first ?? 0)...4999))
    }

    // Any caller can cause refused calls.
    @Test("refused calls get at most a quarter of the log")
    func cutRefusals() throws {
        let store = try DeviceStore(database: database, longestLog: 100_000)
        try append((0..<100).map { entry(.announced, "epoch \($0)") }, to: store)
        for turn in 0..<10 {
            try append((0..<500).map { entry(.refused, "\(turn * 500 + $0)") }, to: store)
        }
        let details = try details()
        #expect(details.count { $0.hasPrefix("epoch") } == 100)
        #expect(details.last == "4999" && details.count < 100 + 250 + 500)
    }

    @Test("entries of a complete round are removed when they are the oldest")
    func cutCompleteRounds() throws {
        let store = try DeviceStore(database: database, longestLog: 1000)
        var ledger = owed()
        _ = ledger.report(.finished, of: 2, by: "a", on: nil, detail: nil, at: .at(2))
        try store.save(&ledger, log: [entry(.held, session: 2, "complete")])
        try append((0..<2000).map { entry(.announced, "\($0)") }, to: store)
        let details = try details()
        #expect(details.count <= 10 && !details.contains("complete"))
    }

    @Test("entries of an open round are limited too, by bytes and not by characters")
    func cutOpenRounds() throws {
        let store = try DeviceStore(database: database, longestLog: 50_000)
        var ledger = owed()
        try store.save(&ledger)
        let words = String(repeating: "\u{1F512}", count: 250)
        for _ in 0..<4 {
            try append(Array(repeating: entry(.failed, session: 2, words), count: 1000), to: store)
        }
        #expect(try details().count <= 100)
    }

    @Test("a name leaves the file, and a provider's account the log, with the last receipt")
    func subjectOfProvider() throws {
        let store = try DeviceStore(database: database)
        let account = Account(identifier: "U.T", username: "xquentinx", displayName: "Xquentin")
        var ledger = CleanupLedger()
        ledger.begin(2, account: account, at: .at(0))
        _ = ledger.hold(2, by: "a", on: nil)
        func entry(_ event: AuditEntry.Event) -> AuditEntry {
            AuditEntry(event: event, at: Moment.at(0).wall, session: 2, account: "u.t", accountName: "xquentinx")
        }
        func names() throws -> [String?] { try database.auditLog().map(\.account) }
        try store.save(&ledger, log: [entry(.signedIn)])
        ledger.end(2, at: .at(1))
        try store.save(&ledger, log: [entry(.signedOut)])
        #expect(try names() == ["xquentinx", "xquentinx"])
        database.eraseRemnants()
        for name in ["xquentinx", "Xquentin"] { #expect(try directory.contains(name)) }
        _ = ledger.report(.finished, of: 2, by: "a", on: nil, detail: nil, at: .at(2))
        try store.save(&ledger, log: [AuditEntry(event: .completed, at: Moment.at(2).wall, session: 2)])
        #expect(try names() == ["account #1", "account #1", nil])
        database.eraseRemnants()
        try directory.expectNone(of: "xquentinx", "Xquentin")
    }

    // MARK: A full disk

    // S3
    @Test("a sign-out without room on the disk is noted in reserved space")
    func reserve() throws {
        let before = Date()
        try database.save(DeviceState(mode: .shared, account: .ada, epoch: 2))
        try fillDisk()
        store.notes.note(signedOut, at: before)
        #expect(throws: StoreError.self) { try signOut(store) }
        let content = try DeviceStore(database: DeviceDatabase(directory: directory.state)).load(at: .now)
        #expect(content.device.account == .ada)
        let noted = try #require(content.noted)
        #expect(abs(noted.date.timeIntervalSince(before)) < 0.001)
        let state = BrokerState(content, at: .now)
        #expect(state.device.account == nil && state.device.epoch == 3)
        // Once there is room, the rows contain the sign-out.
        try emptyDisk()
        try signOut(store)
        #expect(try store.load(at: .now).noted == nil)
        // A note of an earlier session does not end a later one.
        try database.save(DeviceState(mode: .shared, account: .grace, epoch: 4))
        #expect(try store.load(at: .now).noted == nil)
    }

    @Test("a sign-out that cannot be written is noted in memory until a later session")
    func inMemory() throws {
        try database.save(DeviceState(mode: .shared, account: .ada, epoch: 2))
        let store = { try DeviceStore(database: self.database, runtimeDirectory: self.directory.path) }
        try store().notes.noteInMemory(signedOut, at: Date())
        let content = try store().load(at: .now)
        #expect(content.device.account == .ada && content.noted?.state == signedOut)
        #expect(mode(of: directory.path + "/signed-out") == 0o600)
        try database.save(DeviceState(mode: .shared, account: .grace, epoch: 4))
        #expect(try store().load(at: .now).noted == nil)
        // Without a runtime directory the device works without such a note.
        let none = try DeviceStore(database: database, runtimeDirectory: directory.path + "/missing")
        #expect(try none.notes.undoing.contains("broker") && store().notes.undoing.contains("device"))
    }

    @Test("an invalid note is ignored")
    func senselessNote() throws {
        try database.save(DeviceState(mode: .shared, account: .ada, epoch: 2))
        let path = directory.databaseFile + ".signed-out"
        #expect(mode(of: path) == 0o600)
        for (text, isValid) in [
            ("nobody 3 shared 5", true), ("", false), ("nobody", false), ("nobody 3", false),
            ("nobody 3 shared", false), ("nobody x shared 5", false), ("nobody 3 mine 5", false),
            ("nobody 3 shared 1e300", false), ("somebody 3 shared 5", false),
        ] {
            let content = Data(text.utf8) + Data(repeating: 0, count: 4096 - text.utf8.count)
            try content.write(to: URL(fileURLWithPath: path))
            #expect(try (store.load(at: .now).noted != nil) == isValid, "\(text)")
        }
    }

    @Test(
        "a cleanly closed store opens on a full disk and can note a sign-out",
        .enabled(if: FullDisk.canBeMade, "this user may not mount")
    )
    func opensOnFullDisk() throws {
        let disk = try FullDisk()
        do {
            let database = try DeviceDatabase(directory: disk.state, firstEpoch: 0)
            _ = try DeviceStore(database: database)
            try database.save(DeviceState(mode: .shared, account: .ada, epoch: 2))
        }
        // The write-ahead log is empty: the close has moved all of Ada's data into the database file.
        #expect(disk.size(of: DeviceDatabase.fileName + "-wal") == 0)
        try disk.fill()
        let database = try DeviceDatabase(directory: disk.state, .existing)
        let store = try DeviceStore(database: database)
        #expect(try store.load(at: .now).device.account == .ada)
        #expect(store.notes.note(signedOut, at: Date()) == nil)
        let error = #expect(throws: StoreError.self) { try signOut(store) }
        #expect(error?.code == .noSpace, "\(error.map { "\($0)" } ?? "")")
        #expect(try store.load(at: .now).noted?.state.epoch == 3)
        try disk.empty()
        try signOut(store)
        #expect(try store.load(at: .now).device.account == nil)
    }

    /// Makes each update of the device's row fail, as on a full disk.
    private func fillDisk() throws {
        try directory.sql("CREATE TRIGGER full BEFORE UPDATE ON device BEGIN SELECT RAISE(ABORT, 'full'); END")
    }

    private func emptyDisk() throws { try directory.sql("DROP TRIGGER full") }
}

private final class FullDisk {
    static let canBeMade: Bool = { (try? FullDisk()) != nil }()

    private struct NotMounted: Error {}

    private let directory: TemporaryDirectory
    private var filler: String { directory.path + "/filler" }
    var state: String { directory.path + "/state" }

    init() throws {
        directory = try TemporaryDirectory()
        guard geteuid() == 0, mount("none", directory.path, "tmpfs", 0, "size=2m") == 0 else { throw NotMounted() }
    }

    deinit { umount2(directory.path, Int32(MNT_DETACH)) }

    func size(of file: String) -> Int? {
        var information = stat()
        return stat(state + "/" + file, &information) == 0 ? Int(information.st_size) : nil
    }

    func fill() throws {
        let file = open(filler, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
        defer { close(file) }
        let block = [UInt8](repeating: 0x66, count: 4096)
        while write(file, block, block.count) > 0 {}
        #expect(errno == ENOSPC)
    }

    func empty() throws { try FileManager.default.removeItem(atPath: filler) }
}
