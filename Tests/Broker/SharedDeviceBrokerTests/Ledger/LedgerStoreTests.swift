import Foundation
import GRDB
import SharedDevice
import Testing

@testable import SharedDeviceBroker

@Suite("The ledger on the disk")
struct LedgerStoreTests {
    private let directory: TemporaryDirectory
    private let database: DeviceDatabase
    private let store: LedgerStore

    init() throws {
        directory = try TemporaryDirectory()
        database = try DeviceDatabase(directory: directory.state, firstEpoch: 0)
        store = LedgerStore(database: database)
    }

    // Halves are exact, so that times come back as they went.
    private func at(_ seconds: Double) -> Date { Date(timeIntervalSince1970: 1_000_000.5 + seconds) }

    /// One of everything: an open session, rounds of each outcome, apps at each progress.
    private func fullLedger() -> CleanupLedger {
        var ledger = CleanupLedger()
        for epoch: UInt64 in [2, 4, 6] {
            ledger.begin(epoch, account: .ada, subject: 1, at: at(0))
            for progress in CleanupReport.Progress.allCases { _ = ledger.hold(epoch, by: progress.rawValue) }
            ledger.end(epoch, at: at(1))
            for progress in CleanupReport.Progress.allCases where progress != .owed {
                _ = ledger.tell(progress.rawValue, at: at(2))
                _ = ledger.report(progress, of: epoch, by: progress.rawValue, detail: "d", at: at(3))
            }
            if epoch == 2 { _ = ledger.expire(timeout: 1, at: at(100)) }
            if epoch == 4 {
                for progress in CleanupReport.Progress.allCases {
                    _ = ledger.report(.finished, of: epoch, by: progress.rawValue, detail: nil, at: at(4))
                }
            }
        }
        ledger.begin(8, account: .grace, subject: nil, at: at(9))
        _ = ledger.hold(8, by: "a")
        return ledger
    }

    private func sql(_ statement: String) throws {
        let queue = try DatabaseQueue(path: directory.databaseFile)
        try queue.write { db in
            try db.execute(sql: "PRAGMA ignore_check_constraints = ON")
            try db.execute(sql: statement)
        }
        try queue.close()
    }

    @Test("what is committed is read again, each outcome, progress and time of it")
    func roundTrip() throws {
        let ledger = fullLedger()
        #expect(Set(ledger.sessions.values.map(\.outcome)) == [nil, .open, .complete, .expired])
        try store.commit(nil, from: CleanupLedger(), to: ledger, log: [])
        #expect(try store.ledger() == ledger)
        #expect(try LedgerStore(database: DeviceDatabase(directory: directory.state, firstEpoch: 0)).ledger() == ledger)
    }

    @Test("of random changes, each commit leaves the disk with what was committed", arguments: 0..<5)
    func randomDiffs(seed: Int) throws {
        var generator = SeededGenerator(state: UInt64(seed))
        var stored = CleanupLedger()
        var epoch: UInt64 = 0
        for turn in 0..<60 {
            var next = stored
            for _ in 0..<Int.random(in: 1...4, using: &generator) {
                let app = ["a", "b", "c"].randomElement(using: &generator) ?? "a"
                let now = at(Double(turn))
                switch Int.random(in: 0..<8, using: &generator) {
                case 0:
                    epoch += 2
                    next.end(epoch - 2, at: now)
                    next.begin(epoch, account: .ada, subject: 1, at: now)
                case 1..<4: _ = next.hold(epoch, by: app)
                case 4: _ = next.tell(app, at: now)
                case 5: _ = next.rename(app, to: "d")
                case 6: next.prune(keeping: 1)
                default:
                    for owed in next.owed(by: app) {
                        _ = next.report(.finished, of: owed.epoch, by: app, detail: nil, at: now)
                    }
                }
            }
            try store.commit(nil, from: stored, to: next, log: [])
            #expect(try store.ledger() == next, "seed \(seed), turn \(turn)")
            stored = next
        }
    }

    @Test("only the rows that differ are written")
    func diff() throws {
        let ledger = fullLedger()
        try store.commit(nil, from: CleanupLedger(), to: ledger, log: [])
        // Whoever wrote a row again would undo this mark.
        try sql("UPDATE participation SET detail = 'mark' WHERE app <> 'owed'")
        try sql("UPDATE session SET started_at = 77")
        var next = ledger
        _ = next.tell("owed", at: at(50))
        try store.commit(nil, from: ledger, to: next, log: [])
        let stored = try store.ledger()
        #expect(stored.participations[6]?["owed"]?.progress == .told)
        #expect(stored.sessions.values.allSatisfy { $0.startedAt.timeIntervalSince1970 == 77 })
        for (app, part) in stored.participations[6] ?? [:] where app != "owed" { #expect(part.detail == "mark") }
    }

    @Test("state, ledger and log are committed together or not at all")
    func allOrNothing() throws {
        try store.commit(DeviceState(mode: .shared, account: nil, epoch: 1), from: .init(), to: .init(), log: [])
        var next = CleanupLedger()
        next.begin(2, account: .ada, subject: nil, at: at(0))
        _ = next.hold(2, by: "a")
        let entry = AuditEntry(.signedIn, at: at(0), session: 2)
        let state = DeviceState(mode: .shared, account: .ada, epoch: 2)
        // The log comes last in the transaction.
        try sql("CREATE TRIGGER no_log BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no'); END")
        #expect(throws: StoreError.self) { try store.commit(state, from: .init(), to: next, log: [entry]) }
        #expect(try AccountStore(database: database).state().epoch == 1)
        #expect(try store.ledger() == CleanupLedger())
        try sql("DROP TRIGGER no_log")
        // A state that somebody else has replaced meanwhile: the ledger stays, too.
        let stale = DeviceState(mode: .shared, account: .ada, epoch: 5)
        let error = #expect(throws: StoreError.self) { try store.commit(stale, from: .init(), to: next, log: [entry]) }
        #expect(error?.code == .staleEpoch)
        #expect(try store.ledger() == CleanupLedger())
        #expect(try AuditLog(database: database).lines().isEmpty)
        try store.commit(state, from: .init(), to: next, log: [entry])
        #expect(try AccountStore(database: database).state().account == .ada)
        #expect(try store.ledger() == next)
        #expect(try AuditLog(database: database).lines().count == 1)
    }

    @Test(
        "a row that makes no sense is an error, not a trap, and not half a ledger",
        arguments: [
            "UPDATE session SET epoch = -1 WHERE epoch = 2", "UPDATE session SET started_at = 'x'",
            "UPDATE session SET started_at = 1e300", "UPDATE session SET outcome = 'half'",
            "UPDATE session SET outcome = NULL WHERE epoch = 2", "UPDATE session SET ended_at = NULL",
            "UPDATE session SET ended_at = 'x'",
            "UPDATE participation SET progress = 'half'", "UPDATE participation SET progress = NULL WHERE session = 2",
            "UPDATE participation SET progress = 'owed' WHERE session = 8",
            "UPDATE participation SET session = -3 WHERE session = 8", "DELETE FROM session WHERE epoch = 2",
            "UPDATE participation SET app = x'ff' WHERE session = 8",
        ]
    )
    func damaged(statement: String) throws {
        try store.commit(nil, from: CleanupLedger(), to: fullLedger(), log: [])
        try sql(statement)
        let error = #expect(throws: StoreError.self) { try store.ledger() }
        #expect(error?.code == .damaged)
        #expect(error?.remedy != nil)
    }

    @Test("a name leaves the file when its last receipt is in, and when its round is forgotten nothing is left of it")
    func erasure() throws {
        var open = CleanupLedger()
        open.begin(
            2,
            account: Account(identifier: "q.t", username: "xquentinx", displayName: "Xquentin"),
            subject: 1,
            at: at(0)
        )
        _ = open.hold(2, by: "a")
        try store.commit(nil, from: .init(), to: open, log: [])
        var over = open
        over.end(2, at: at(1))
        try store.commit(nil, from: open, to: over, log: [])
        for name in ["xquentinx", "Xquentin"] { #expect(try directory.contains(name)) }
        var done = over
        _ = done.report(.finished, of: 2, by: "a", detail: nil, at: at(2))
        try store.commit(nil, from: over, to: done, log: [])
        for name in ["xquentinx", "Xquentin"] { #expect(try !directory.contains(name)) }
    }

    @Test("an account has one number in the log, until it is removed")
    func subjects() throws {
        let ada = try store.subject(of: .ada)
        let grace = try store.subject(of: .grace)
        #expect(ada != grace)
        let capitals = Account(identifier: Account.ada.identifier.uppercased(), username: "ada@example.com")
        #expect(try store.subject(of: capitals) == ada)
    }

    // MARK: Migration

    /// The tables as the first version made them.
    private func makeFirstVersion(in path: String, _ content: String) throws {
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        try FileManager.default.setAttributes([.posixPermissions: 0o700], ofItemAtPath: path)
        let queue = try DatabaseQueue(path: "\(path)/\(DeviceDatabase.fileName)")
        try queue.write { db in
            try db.execute(
                sql: """
                    CREATE TABLE grdb_migrations (identifier TEXT NOT NULL PRIMARY KEY);
                    INSERT INTO grdb_migrations VALUES ('1: device and users');
                    PRAGMA application_id = \(0x5344_4D31);
                    CREATE TABLE device (
                        id INTEGER PRIMARY KEY CHECK (id = 1),
                        mode TEXT NOT NULL CHECK (mode IN ('shared', 'personal')),
                        epoch INTEGER NOT NULL CHECK (epoch >= 0),
                        account_identifier TEXT, account_username TEXT, account_display_name TEXT,
                        CHECK ((account_identifier IS NULL) = (account_username IS NULL)),
                        CHECK (mode = 'shared' OR account_identifier IS NULL)
                    );
                    CREATE TABLE directory (id INTEGER PRIMARY KEY CHECK (id = 1), tenant_identifier TEXT NOT NULL);
                    CREATE TABLE user (
                        identifier TEXT NOT NULL PRIMARY KEY, username TEXT NOT NULL,
                        username_key TEXT NOT NULL UNIQUE, display_name TEXT, password_hash TEXT NOT NULL,
                        disabled INTEGER NOT NULL DEFAULT 0 CHECK (disabled IN (0, 1)), created_at INTEGER NOT NULL
                    );
                    \(content)
                    """
            )
        }
        try queue.close()
    }

    @Test("who is signed in when the first version is replaced has a session, which a sign-out ends like any other")
    func migration() async throws {
        let path = directory.file("first")
        try makeFirstVersion(
            in: path,
            "INSERT INTO device VALUES (1, 'shared', 6, 'a11ce.7e4a47', 'ada@example.com', 'Ada Lovelace');"
        )
        let database = try DeviceDatabase(directory: path, firstEpoch: 0)
        let ledger = try LedgerStore(database: database).ledger()
        #expect(ledger.sessions.keys.sorted() == [6])
        #expect(ledger.sessions[6]?.account == .ada)
        #expect(ledger.sessions[6]?.outcome == nil)
        let broker = try DeviceBroker(
            database: database,
            provider: EmbeddedIdentityProvider(directory: UserDirectory(database: database))
        )
        #expect(try await broker.session(for: "a").session.account == .ada)
        _ = try await broker.signOut(nil, cause: "test")
        #expect(try await broker.session(for: "a").owed.map(\.epoch) == [6])
        #expect(try AuditLog(database: database).lines().first { $0.entry.event == .signedOut }?.account == nil)
    }

    @Test("a first version with nobody signed in becomes one with an empty ledger")
    func migrationSignedOut() throws {
        let path = directory.file("first")
        try makeFirstVersion(in: path, "INSERT INTO device VALUES (1, 'shared', 5, NULL, NULL, NULL);")
        let database = try DeviceDatabase(directory: path, firstEpoch: 0)
        #expect(try LedgerStore(database: database).ledger() == CleanupLedger())
        #expect(try AccountStore(database: database).state().epoch == 5)
    }
}
