package import GRDB

/// The database's tables, and how one version of them becomes the next. A migration that was released is never edited.
enum DeviceSchema {
    /// "SDM1" in SQLite's header: tells our file from another program's.
    private static let applicationIdentifier: Int64 = 0x5344_4D31

    /// - Parameter firstEpoch: the epoch of a device that has had no session.
    static func migrator(firstEpoch: UInt64 = 0) -> DatabaseMigrator {
        var migrator = DatabaseMigrator()
        let first = Int64(clamping: firstEpoch)
        migrator.registerMigration("format 1") { db in
            try db.execute(
                sql: """
                    PRAGMA application_id = \(applicationIdentifier);
                    CREATE TABLE device (
                        id INTEGER PRIMARY KEY CHECK (id = 1),
                        mode TEXT NOT NULL CHECK (mode IN ('shared', 'personal')),
                        epoch INTEGER NOT NULL CHECK (epoch >= 0),
                        account_identifier TEXT,
                        account_username TEXT,
                        account_display_name TEXT,
                        CHECK ((account_identifier IS NULL) = (account_username IS NULL)),
                        CHECK (mode = 'shared' OR account_identifier IS NULL)
                    );
                    INSERT INTO device (id, mode, epoch) VALUES (1, 'personal', \(first));
                    CREATE TABLE configuration (id INTEGER PRIMARY KEY CHECK (id = 1), content BLOB NOT NULL);
                    CREATE TABLE membership (
                        id INTEGER PRIMARY KEY CHECK (id = 1),
                        organization TEXT,
                        tenant_identifier TEXT NOT NULL,
                        joined_at REAL NOT NULL
                    );
                    CREATE TABLE directory (
                        id INTEGER PRIMARY KEY CHECK (id = 1),
                        tenant_identifier TEXT NOT NULL
                    );
                    CREATE TABLE user (
                        identifier TEXT NOT NULL PRIMARY KEY,
                        username TEXT NOT NULL,
                        username_key TEXT NOT NULL UNIQUE,
                        display_name TEXT,
                        password_hash TEXT NOT NULL,
                        role TEXT NOT NULL DEFAULT 'user' CHECK (role IN ('user', 'administrator')),
                        disabled INTEGER NOT NULL DEFAULT 0 CHECK (disabled IN (0, 1)),
                        created_at INTEGER NOT NULL
                    );
                    CREATE TABLE session (
                        number INTEGER PRIMARY KEY CHECK (number >= 0),
                        started_at REAL NOT NULL,
                        ended_at REAL,
                        outcome TEXT CHECK (outcome IN ('open', 'complete', 'expired')),
                        account_identifier TEXT,
                        account_username TEXT,
                        account_display_name TEXT,
                        CHECK ((ended_at IS NULL) = (outcome IS NULL))
                    );
                    CREATE TABLE part (
                        session INTEGER NOT NULL,
                        app TEXT NOT NULL,
                        user INTEGER NOT NULL,
                        progress TEXT,
                        told_at REAL,
                        begun_at REAL,
                        finished_at REAL,
                        detail TEXT,
                        connections TEXT NOT NULL,
                        again INTEGER NOT NULL,
                        PRIMARY KEY (session, app, user)
                    ) WITHOUT ROWID;
                    CREATE TABLE subject (
                        number INTEGER PRIMARY KEY AUTOINCREMENT,
                        account_identifier TEXT NOT NULL UNIQUE,
                        username TEXT NOT NULL
                    );
                    CREATE TABLE audit (
                        sequence INTEGER PRIMARY KEY AUTOINCREMENT,
                        at REAL NOT NULL,
                        event TEXT NOT NULL,
                        session INTEGER,
                        app TEXT,
                        user INTEGER,
                        subject INTEGER,
                        detail TEXT
                    );
                    CREATE TRIGGER audit_keeps_its_rows BEFORE UPDATE ON audit
                    BEGIN SELECT RAISE(ABORT, 'an entry of the audit log does not change'); END;
                    """
            )
        }
        return migrator
    }

    /// Sees that the file is sound, ours, and not of a later version.
    static func check(_ db: Database, path: String) throws {
        let attempted = "open the device's database"
        let verdict = try String.fetchOne(db, sql: "PRAGMA integrity_check(1)")
        guard verdict == "ok" else {
            throw StoreError.damaged(attempted: attempted, message: "\(path): \(verdict ?? "no integrity check")")
        }
        // No tables: a new file, or one whose maker was killed before the first migration.
        guard try Int.fetchOne(db, sql: "SELECT count(*) FROM sqlite_master") != 0 else { return }
        let identifier = try Int64.fetchOne(db, sql: "PRAGMA application_id")
        let migrations = try migrator().appliedIdentifiers(db)
        // The migrator makes its own table before the first migration, in a transaction of its own.
        let hasOnlyMigrationTable =
            try Int.fetchOne(db, sql: "SELECT count(*) FROM sqlite_master WHERE tbl_name <> 'grdb_migrations'") == 0
        guard identifier == applicationIdentifier || (migrations.isEmpty && hasOnlyMigrationTable) else {
            throw StoreError(
                .foreignFile,
                attempted: attempted,
                message: "\(path): it is another program's database",
                remedy: "choose another state directory"
            )
        }
        guard try !migrator().hasBeenSuperseded(db) else {
            throw StoreError(
                .newerVersion,
                attempted: attempted,
                message: "\(path): a newer version of this program has changed its form",
                remedy: "install that version again"
            )
        }
    }
}

extension Row {
    /// The column's value, or `nil` where it is NULL or of another type. GRDB's own subscripts trap on the latter, and the
    /// file comes from outside.
    package func value<Value: DatabaseValueConvertible>(_ column: String) -> Value? {
        let stored: DatabaseValue = self[column]
        return Value.fromDatabaseValue(stored)
    }
}
