import DeviceConfiguration
import DeviceStorage
import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Testing

@testable import BrokerCore
@testable import SharedDeviceBroker

@Suite("The device's store returns exactly the committed state")
struct DeviceStoreTests {
    private let directory: TemporaryDirectory
    private let database: DeviceDatabase
    private let store: DeviceStore

    init() throws {
        directory = try TemporaryDirectory()
        database = try DeviceDatabase(directory: directory.state, firstEpoch: 0)
        store = try DeviceStore(database: database)
    }

    private func content() throws -> StoredContent { try store.load(at: .at(200)) }

    /// The ledger as it is read back, without state that is kept in memory only.
    private func stored(_ ledger: CleanupLedger) -> CleanupLedger {
        let parts = ledger.parts.mapValues { parts in
            parts.mapValues { part in
                var part = part
                part.isReported = false
                return part
            }
        }
        return CleanupLedger(
            sessions: ledger.sessions,
            parts: parts.filter { !$0.value.isEmpty },
            claims: ledger.claims
        )
    }

    /// An open session, rounds of each outcome, and apps at each progress, of two users, with one claim.
    private func fullLedger() -> CleanupLedger {
        var ledger = CleanupLedger()
        let apps = CleanupReport.Progress.allCases.flatMap { progress in
            [1, 2].map { (progress, Participant(app: progress.rawValue, user: $0)) }
        }
        for number: UInt64 in [2, 4, 6] {
            ledger.begin(number, account: .ada, at: .at(0))
            for (_, app) in apps { _ = ledger.hold(number, by: app, on: nil) }
            ledger.end(number, at: .at(1))
            for (progress, app) in apps where progress != .owed {
                _ = ledger.tell(app, at: .at(2))
                _ = ledger.report(progress, of: number, by: app, on: nil, detail: "d", at: .at(3))
            }
            if number == 2 { _ = ledger.expire(timeout: .seconds(1), at: .at(100)) }
            if number == 4 {
                for (_, app) in apps {
                    _ = ledger.report(.finished, of: number, by: app, on: nil, detail: nil, at: .at(4))
                }
            }
        }
        ledger.begin(8, account: .grace, at: .at(9))
        _ = ledger.hold(8, by: "a", on: ":1")
        ledger.claim(Participant(app: "owed", user: 1), CleanupLedger.Claim(connection: "bus:1.7", sessions: [2, 6]))
        return ledger
    }

    @Test("a new database does not repeat the epochs of an earlier one")
    func epochsOfAnotherDatabase() throws {
        let before = UInt64(time(nil))
        let path = directory.file("other")
        let first = try DeviceDatabase(directory: path).device().epoch
        #expect(first >= before)
        try DeviceDatabase(directory: path).save(DeviceState(mode: .shared, account: nil, epoch: first + 1))
        #expect(try DeviceDatabase(directory: path).device().epoch == first + 1, "the epoch stays when it is reopened")
    }

    @Test("a new store is empty, and committed values are read back after opening again")
    func persistence() throws {
        let new = try content()
        #expect(new.device == .initial && new.ledger == CleanupLedger())
        #expect(new.membership == nil && new.configuration == nil && new.noted == nil)
        try store.keep(KeptSettings(configuration: Data("zero".utf8)))
        try store.keep(KeptSettings(configuration: Data("one".utf8), manifests: ["a": Data("a".utf8), "b": Data()]))
        try store.keep(KeptSettings(manifests: ["b": Data("b".utf8)]))
        #expect(try content().manifests == ["b": Data("b".utf8)] && content().configuration == Data("one".utf8))
        var batch = Batch(number: 1)
        batch.device = DeviceState(mode: .shared, account: .ada, groups: ["nurses", "ward 7"], epoch: 2)
        batch.membership = .some(
            Membership(organization: "Contoso", tenantIdentifier: "t", joinedAt: Moment.at(5).wall)
        )
        try store.commit(batch)
        let other = try DeviceStore(database: DeviceDatabase(directory: directory.state)).load(at: .at(0))
        #expect(other.device == batch.device && other.device.account?.displayName == "Ada Lovelace")
        #expect(.some(other.membership) == batch.membership)
        batch = Batch(number: 2)
        batch.membership = .some(nil)
        try store.commit(batch)
        #expect(try content().membership == nil)
        #expect(try content().device.account == .ada, "what a batch does not name stays")
    }

    @Test("a personal device cannot be stored with an account")
    func personalWithAccount() throws {
        let error = #expect(throws: StoreError.self) {
            try database.save(DeviceState(mode: .personal, account: .ada, epoch: 1))
        }
        #expect(error?.code == .failed)
        #expect(try database.device().epoch == 0)
    }

    @Test("commits are synced, deleted bytes are overwritten and references are checked")
    func settings() throws {
        let settings = try database.read("look at the settings") { db in
            try ["synchronous", "secure_delete", "foreign_keys"].map { try db.value("PRAGMA \($0)") ?? -1 }
        }
        #expect(settings == [2, 1, 1])
        #expect(try database.read("look at the journal") { db in try db.value("PRAGMA journal_mode") } == "wal")
    }

    @Test("after random changes the disk contains what each commit contained", arguments: 0..<5)
    func randomChanges(seed: Int) throws {
        var generator = SeededGenerator(state: UInt64(seed))
        var ledger = CleanupLedger()
        var number: UInt64 = 0
        for turn in 0..<60 {
            for _ in 0..<Int.random(in: 1...4, using: &generator) {
                let app = (["a", "b", "c"] as [Participant]).randomElement(using: &generator) ?? "a"
                let now = Moment.at(Double(turn))
                switch Int.random(in: 0..<9, using: &generator) {
                case 0:
                    number += 2
                    ledger.end(number - 2, at: now)
                    ledger.begin(number, account: .ada, at: now)
                case 1..<4: _ = ledger.hold(number, by: app, on: nil)
                case 4: _ = ledger.tell(app, at: now)
                case 5: _ = ledger.rename(app, to: "d")
                case 6: ledger.prune(keeping: 1, namesSince: .distantPast)
                case 7 where ledger.sessions[number]?.outcome == nil && ledger.sessions[number] != nil:
                    ledger.remove(number)
                default:
                    for owed in ledger.owed(by: app) {
                        _ = ledger.report(.finished, of: owed.epoch, by: app, on: nil, detail: nil, at: now)
                    }
                }
            }
            try store.save(&ledger)
            #expect(try content().ledger == stored(ledger), "seed \(seed), turn \(turn)")
        }
    }

    @Test("only the rows that a batch names are written")
    func rows() throws {
        var ledger = fullLedger()
        try store.save(&ledger)
        // Writing a row again would overwrite these marks.
        try directory.sql("UPDATE part SET detail = 'mark' WHERE app <> 'owed'")
        try directory.sql("UPDATE session SET started_at = 77")
        _ = ledger.tell(Participant(app: "owed", user: 1), at: .at(50))
        try store.save(&ledger)
        let read = try content().ledger
        let progress = [1, 2].map { read.parts[6]?[Participant(app: "owed", user: $0)]?.progress }
        #expect(progress == [.told, .owed])
        #expect(read.sessions.values.allSatisfy { $0.startedAt.timeIntervalSince1970 == 77 })
        for (app, part) in read.parts[6] ?? [:] where app.app != "owed" { #expect(part.detail == "mark") }
    }

    @Test("the ledger is read back with each outcome, progress, time, user and claim")
    func claims() throws {
        var ledger = fullLedger()
        try store.save(&ledger)
        #expect(try content().ledger == stored(ledger))
        #expect(ledger.claims.values.map(\.sessions) == [[2, 6]])
        #expect(Set(ledger.sessions.values.map(\.outcome)) == [nil, .open, .complete, .expired])
        ledger.claim(Participant(app: "owed", user: 1), nil)
        try store.save(&ledger)
        #expect(try content().ledger == stored(ledger) && content().ledger.claims.isEmpty)
    }

    @Test("device, membership, ledger and log are committed together or not at all")
    func allOrNothing() throws {
        try database.save(DeviceState(mode: .shared, account: nil, epoch: 1))
        var ledger = CleanupLedger()
        ledger.begin(2, account: .ada, at: .at(0))
        _ = ledger.hold(2, by: "a", on: nil)
        let entry = AuditEntry(event: .signedIn, at: Moment.at(0).wall, session: 2)
        let state = DeviceState(mode: .shared, account: .ada, epoch: 2)
        // The log is written last in the transaction.
        try directory.sql("CREATE TRIGGER no_log BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no'); END")
        #expect(throws: StoreError.self) { try store.save(&ledger, device: state, log: [entry]) }
        #expect(try content().device.epoch == 1 && content().ledger == CleanupLedger())
        try directory.sql("DROP TRIGGER no_log")
        try store.save(&ledger, device: state, log: [entry])
        #expect(try content().device.account == .ada && content().ledger == stored(ledger))
        #expect(try database.auditLog().count == 1)
    }

    // S19
    @Test("the age of a round follows the wall clock and is never negative")
    func age() throws {
        var ledger = CleanupLedger()
        ledger.begin(2, account: .ada, at: .at(0))
        _ = ledger.hold(2, by: "a", on: nil)
        ledger.end(2, at: .at(10))
        try store.save(&ledger)
        for (seconds, age) in [(70.0, 60.0), (10, 0), (-5000, 0)] {
            var now = Moment.at(seconds)
            now.uptime = .seconds(3)
            let ended = try store.load(at: now).ledger.sessions[2]?.endedUptime
            #expect(ended == .seconds(3 - age))
        }
    }

    @Test(
        "an invalid row is an error, and gives no state and no partial ledger",
        arguments: [
            "DELETE FROM device", "UPDATE device SET epoch = 'x'",
            "UPDATE session SET number = -1 WHERE number = 2", "UPDATE session SET started_at = 'x'",
            "UPDATE session SET started_at = 1e300", "UPDATE session SET outcome = 'half'",
            "UPDATE session SET outcome = NULL WHERE number = 2", "UPDATE session SET ended_at = NULL",
            "UPDATE claim SET user = -1", "UPDATE claim SET sessions = x'ff'", "UPDATE claim SET sessions = '2 half'",
            "UPDATE session SET ended_at = 'x'",
            "UPDATE part SET progress = 'half'", "UPDATE part SET progress = NULL WHERE session = 2",
            "UPDATE part SET progress = 'owed' WHERE session = 8",
            "UPDATE part SET session = -3 WHERE session = 8", "DELETE FROM session WHERE number = 2",
            "UPDATE part SET app = x'ff' WHERE session = 8", "UPDATE part SET user = -1 WHERE session = 8",
            "INSERT INTO membership VALUES (1, NULL, 't', 1e300)",
        ]
    )
    func damaged(statement: String) throws {
        var ledger = fullLedger()
        try store.save(&ledger)
        try directory.sql(statement)
        let error = #expect(throws: StoreError.self) { try content() }
        #expect(error?.code == .damaged && error?.remedy != nil)
    }
}
