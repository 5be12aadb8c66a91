/// The tables of the database, and the migrations. SQLite's header contains the version (`PRAGMA user_version`).
enum DeviceSchema {
    /// "SDM1" in SQLite's header, which distinguishes our file from another program's.
    private static let applicationIdentifier: Int64 = 0x5344_4D31

    /// The migration to each version; the first one starts with an empty file. Never edit a step that was released.
    private static func steps(firstEpoch: UInt64) -> [String] {
        [
            """
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
            INSERT INTO device (id, mode, epoch) VALUES (1, 'personal', \(Int64(clamping: firstEpoch)));
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
            """,
            """
            CREATE TABLE signing_key (
                identifier TEXT NOT NULL PRIMARY KEY,
                public_key TEXT NOT NULL,
                secret_key BLOB,
                made_at REAL NOT NULL,
                retired_at REAL,
                CHECK ((secret_key IS NULL) = (retired_at IS NOT NULL))
            );
            """,
            """
            CREATE TABLE provider_session (
                epoch INTEGER PRIMARY KEY CHECK (epoch >= 0),
                issuer TEXT NOT NULL,
                client TEXT NOT NULL,
                record BLOB,
                checked_at REAL NOT NULL
            );
            CREATE TABLE provider_end (
                number INTEGER PRIMARY KEY CHECK (number >= 0),
                record BLOB NOT NULL,
                added_at REAL NOT NULL,
                tries INTEGER NOT NULL
            );
            """,
            """
            CREATE TABLE device_compliance (
                id INTEGER PRIMARY KEY CHECK (id = 1),
                issuer TEXT NOT NULL,
                compliant INTEGER NOT NULL CHECK (compliant IN (0, 1)),
                said_at REAL NOT NULL
            );
            """,
            "ALTER TABLE provider_session ADD COLUMN needs_person INTEGER NOT NULL DEFAULT 0 CHECK (needs_person IN (0, 1));",
            """
            ALTER TABLE provider_session ADD COLUMN settled INTEGER NOT NULL DEFAULT 0 CHECK (settled IN (0, 1));
            ALTER TABLE provider_end ADD COLUMN keeps_session INTEGER NOT NULL DEFAULT 0 CHECK (keeps_session IN (0, 1));
            """,
            """
            ALTER TABLE provider_session ADD COLUMN proved_at REAL NOT NULL DEFAULT 0;
            ALTER TABLE provider_session ADD COLUMN began_at REAL NOT NULL DEFAULT 0;
            UPDATE provider_session SET proved_at = coalesce((SELECT started_at FROM session WHERE number = epoch), 0);
            UPDATE provider_session SET began_at = proved_at;
            """,
            "CREATE TABLE manifest (file TEXT NOT NULL PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID;",
            """
            CREATE TABLE claim (
                app TEXT NOT NULL,
                user INTEGER NOT NULL,
                connection TEXT NOT NULL,
                sessions TEXT NOT NULL,
                PRIMARY KEY (app, user)
            ) WITHOUT ROWID;
            """,
            // Both are names with a line break between them.
            """
            ALTER TABLE user ADD COLUMN member_of TEXT NOT NULL DEFAULT '';
            ALTER TABLE device ADD COLUMN account_groups TEXT NOT NULL DEFAULT '';
            """,
            """
            ALTER TABLE directory ADD COLUMN badge_key BLOB;
            ALTER TABLE user ADD COLUMN badge_hash BLOB;
            ALTER TABLE user ADD COLUMN pin_hash TEXT;
            CREATE UNIQUE INDEX user_badge ON user (badge_hash);
            """,
        ]
    }

    /// Migrates the file to this program's version, in one transaction.
    static func bringUpToDate(_ db: SQLiteConnection, firstEpoch: UInt64) throws {
        let steps = steps(firstEpoch: firstEpoch)
        guard try db.value("PRAGMA user_version") != steps.count else { return }
        try db.write { db in
            for step in steps[try version(of: db)...] { try db.execute(step) }
            try db.execute("DROP TABLE IF EXISTS grdb_migrations; PRAGMA user_version = \(steps.count)")
        }
    }

    /// The version of the file; 0 if it is empty.
    private static func version(of db: SQLiteConnection) throws -> Int {
        // Before the first release, GRDB kept the version in a separate table. Only version 1 existed then.
        let tables: Int? = try db.value("SELECT count(*) FROM sqlite_master WHERE name = 'grdb_migrations'")
        return try tables == 1 ? 1 : db.value("PRAGMA user_version") ?? 0
    }

    /// Checks that the file is sound, belongs to this program, and has no later version.
    static func check(_ db: SQLiteConnection, path: String) throws {
        let attempted = "open the device's database"
        let verdict: String? = try db.value("PRAGMA integrity_check(1)")
        guard verdict == "ok" else { throw SQLiteError.damaged(verdict ?? "no integrity check") }
        // Without tables, the file is new, or its creator was killed early.
        let isEmpty = try db.value("SELECT count(*) FROM sqlite_master") == 0
        if isEmpty, try db.value("PRAGMA user_version") == 0 { return }
        guard try db.value("PRAGMA application_id") == applicationIdentifier else {
            let message = "\(path): it is another program's database"
            let remedy = "choose another state directory"
            throw StoreError(.foreignFile, attempted: attempted, message: message, remedy: remedy)
        }
        guard (0...steps(firstEpoch: 0).count).contains(try version(of: db)) else {
            let message = "\(path): a newer version of this program has changed its form"
            let remedy = "install that version again"
            throw StoreError(.newerVersion, attempted: attempted, message: message, remedy: remedy)
        }
    }
}
