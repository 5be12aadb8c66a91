import DeviceStorage
import Foundation
import Glibc
import NotifyCenterTestKit
import Testing

extension DeviceDatabase {
    fileprivate var epoch: Int64? {
        get throws { try read("read the epoch") { db in try db.value("SELECT epoch FROM device") } }
    }

    fileprivate func setEpoch(_ epoch: Int64) throws {
        try write("set the epoch") { db in try db.run("UPDATE device SET epoch = ?", epoch) }
    }
}

@Suite("Device database file")
struct DeviceDatabaseTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory("storage-tests") }

    private func failure(_ opening: DeviceDatabase.Opening = .createIfMissing, in path: String? = nil) -> StoreError? {
        do throws(StoreError) {
            _ = try DeviceDatabase(directory: path ?? directory.state, opening, firstEpoch: 0)
            return nil
        } catch {
            return error
        }
    }

    /// Makes a database with the epoch 2 and one user.
    private func makeSoundFile() throws {
        let database = try DeviceDatabase(directory: directory.state, firstEpoch: 0)
        for epoch: Int64 in 1...2 { try database.setEpoch(epoch) }
        let sql = """
            INSERT INTO user (identifier, username, username_key, password_hash, created_at)
            VALUES ('1.2', 'Ada', 'ada', '$7$', 0)
            """
        try database.write("add a user") { db in try db.run(sql) }
    }

    private func connection() throws -> SQLiteConnection { try SQLiteConnection(path: directory.databaseFile) }

    private var content: Data { get throws { try Data(contentsOf: URL(fileURLWithPath: directory.databaseFile)) } }

    @Test("only the owner may read the directory, its new parents and its files")
    func permissions() throws {
        let directories = ["a", "a/b", "a/b/c"].map { directory.file($0) }
        let database = try DeviceDatabase(directory: directories[2], firstEpoch: 0)
        for directory in directories { #expect(mode(of: directory) == 0o700) }
        for suffix in ["", "-wal", "-shm"] { #expect(mode(of: database.path + suffix) == 0o600, "\(suffix)") }
        #expect(mode(of: directories[2] + "/shared-device.lock") == 0o600)
        // A file that others can read is corrected when it is opened.
        chmod(database.path, 0o644)
        #expect(failure(in: directories[2]) == nil)
        #expect(mode(of: database.path) == 0o600)
    }

    @Test(
        "another user's directory is refused even to root, and stays empty",
        .enabled(if: geteuid() == 0, "only root can be two users")
    )
    func ownership() throws {
        mkdir(directory.state, 0o700)
        chown(directory.state, 1234, 5678)
        for opening in [DeviceDatabase.Opening.createIfMissing, .existing] {
            let error = try #require(failure(opening))
            #expect(error.code == .noPermission && error.description.contains("it belongs to user 1234"))
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory.state).isEmpty)
    }

    @Test("a directory that others may write to, or a link as the file, is not used")
    func writableDirectory() throws {
        mkdir(directory.state, 0o700)
        chmod(directory.state, 0o777)
        for opening in [DeviceDatabase.Opening.createIfMissing, .existing] {
            let error = try #require(failure(opening))
            #expect(error.code == .insecure && error.description.contains("chmod 700 \(directory.state)"))
        }
        #expect(mode(of: directory.state) == 0o777)
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory.state).isEmpty)
        chmod(directory.state, 0o700)
        try directory.write("precious", to: "target")
        symlink(directory.file("target"), directory.databaseFile)
        #expect(failure()?.code == .insecure)
        #expect(try String(contentsOfFile: directory.file("target"), encoding: .utf8) == "precious")
    }

    @Test("a missing database, or a directory that cannot be created, is an error")
    func notFound() throws {
        let missing = failure(.existing)
        #expect(missing?.code == .notFound)
        // The message names the place, because the state may be elsewhere.
        let text = missing?.description ?? ""
        #expect(text.contains(directory.state) && text.contains("--state") && text.contains("/var/lib/shared-device"))
        #expect(mode(of: directory.state) == nil)
        mkdir(directory.state, 0o700)
        #expect(failure(.existing)?.code == .notFound)
        #expect(mode(of: directory.databaseFile) == nil)
        // A directory that cannot be created is named, too.
        try directory.write("", to: "file")
        let error = try #require(failure(in: directory.file("file/state")))
        #expect(error.code == .cannotCreate && error.description.contains(directory.file("file")))
    }

    enum Damage: CaseIterable {
        case otherContent
        case page
        case index
        case truncation
    }

    @Test("a damaged database is refused and not overwritten", arguments: Damage.allCases)
    func damaged(damage: Damage) throws {
        try makeSoundFile()
        var bytes = try content
        let (page, end) = (4096, bytes.count)
        #expect(end > 2 * page)
        switch damage {
        case .otherContent: bytes = Data(String(repeating: "this is no database. ", count: 1000).utf8)
        case .page: bytes.replaceSubrange(page..<end, with: repeatElement(0xA5, count: end - page))
        case .index:
            // The index now has another name than the row.
            let index = try #require(bytes.range(of: Data("ada".utf8), options: .backwards))
            bytes.replaceSubrange(index, with: Data("eve".utf8))
        case .truncation: bytes = bytes.prefix(page)
        }
        try bytes.write(to: URL(fileURLWithPath: directory.databaseFile))
        for opening in [DeviceDatabase.Opening.createIfMissing, .existing] {
            #expect(failure(opening)?.code == .damaged)
        }
        #expect(try content == bytes)
    }

    /// Removes what both versions below lack.
    private static let downgrade = """
        DROP TABLE device_compliance;
        DROP TABLE manifest;
        DROP TABLE claim;
        ALTER TABLE user DROP COLUMN member_of;
        ALTER TABLE device DROP COLUMN account_groups;
        DROP INDEX user_badge;
        ALTER TABLE user DROP COLUMN badge_hash;
        ALTER TABLE user DROP COLUMN pin_hash;
        ALTER TABLE directory DROP COLUMN badge_key;
        """

    /// Statements that make a database of an earlier version, and the values of queries after the upgrade.
    private static let earlier: [(String, [String: Int])] = [
        // A version from before the first release.
        (
            """
            CREATE TABLE grdb_migrations (identifier TEXT NOT NULL PRIMARY KEY);
            INSERT INTO grdb_migrations VALUES ('format 1');
            DROP TABLE signing_key;
            DROP TABLE provider_session;
            DROP TABLE provider_end;
            \(downgrade)
            PRAGMA user_version = 0;
            """,
            ["SELECT count(*) FROM sqlite_master WHERE name LIKE 'grdb%'": 0]
        ),
        // Versions that did not record whether the last request had a response.
        (
            """
            ALTER TABLE provider_session DROP COLUMN needs_person;
            ALTER TABLE provider_session DROP COLUMN settled;
            ALTER TABLE provider_session DROP COLUMN proved_at;
            ALTER TABLE provider_session DROP COLUMN began_at;
            ALTER TABLE provider_end DROP COLUMN keeps_session;
            INSERT INTO provider_end (number, record, added_at, tries) VALUES (1, x'00', 1, 0);
            \(downgrade)
            INSERT INTO provider_session (epoch, issuer, client, record, checked_at)
            VALUES (2, 'https://a', 'b', x'00', 1);
            PRAGMA user_version = 3;
            """,
            [
                "SELECT needs_person FROM provider_session WHERE issuer = 'https://a'": 0,
                "SELECT settled FROM provider_session WHERE issuer = 'https://a'": 0,
                "SELECT keeps_session FROM provider_end WHERE number = 1": 0,
            ]
        ),
    ]

    @Test("a database of an earlier version is migrated and kept", arguments: earlier)
    func earlierVersion(statements: String, values: [String: Int]) throws {
        try makeSoundFile()
        try connection().execute(statements)
        #expect(try DeviceDatabase(directory: directory.state, firstEpoch: 0).epoch == 2)
        let file = try SQLiteConnection(path: directory.databaseFile, .read)
        for (query, expected) in values.merging(["PRAGMA user_version": 11], uniquingKeysWith: { $1 }) {
            #expect(try file.value(query) == expected, "\(query)")
        }
    }

    @Test(
        "a database of a newer version or another program is refused and not changed",
        arguments: [
            (true, "PRAGMA user_version = 12", .newerVersion), (true, "PRAGMA user_version = -1", .newerVersion),
            (false, "CREATE TABLE recipe (name TEXT)", .foreignFile),
            // A file with a version, but without tables.
            (false, "PRAGMA user_version = 1", .foreignFile), (false, "PRAGMA user_version = 11", .foreignFile),
            (false, "PRAGMA user_version = -1", .foreignFile),
        ] as [(Bool, String, StoreError.Code)]
    )
    func foreign(isOurs: Bool, sql: String, code: StoreError.Code) throws {
        try makeSoundFile()
        if !isOurs { try Data().write(to: URL(fileURLWithPath: directory.databaseFile)) }
        try connection().execute(sql)
        let before = try content
        let error = try #require(failure())
        #expect(error.code == code && error.remedy != nil)
        #expect(try content == before)
    }

    @Test("a locked database causes a busy error after the timeout")
    func busy() throws {
        try makeSoundFile()
        let database = try DeviceDatabase(directory: directory.state, busyTimeout: .milliseconds(20), firstEpoch: 0)
        try connection().write { _ in
            let error = #expect(throws: StoreError.self) { try database.setEpoch(3) }
            #expect(error?.code == .busy)
            let epoch = try database.epoch
            #expect(epoch == 2, "readers need not wait")
        }
        try database.setEpoch(3)
    }

    @Test("many simultaneous openings of a new database all succeed")
    func simultaneousOpenings() async throws {
        let threads = Workers(label: "openings", count: 8, capacity: 8)
        for round in 0..<20 {
            let path = directory.file("\(round)")
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<8 {
                    group.addTask {
                        // The last opening waits for all others, on a disk that may be busy.
                        let opened = await threads.run {
                            Result { try DeviceDatabase(directory: path, busyTimeout: .seconds(120), firstEpoch: 0) }
                        }
                        _ = try #require(opened).get()
                    }
                }
                try await group.waitForAll()
            }
        }
    }
}

@Suite("Path of the state directory")
struct StateDirectoryTests {
    @Test("the path comes from the variable, root's default, XDG, then the home directory")
    func precedence() {
        func path(_ environment: [String: String], root: Bool = false) -> String {
            StateDirectory.path(environment: environment, effectiveUser: root ? 0 : 1000, home: "/home/ada")
        }
        for (environment, isRoot, expected) in [
            (["SHARED_DEVICE_STATE": "/s", "XDG_STATE_HOME": "/x"], true, "/s"),
            (["SHARED_DEVICE_STATE": "/s", "XDG_STATE_HOME": "/x"], false, "/s"),
            (["XDG_STATE_HOME": "/x"], true, "/var/lib/shared-device"),
            (["XDG_STATE_HOME": "/x", "SHARED_DEVICE_STATE": ""], false, "/x/shared-device"),
            (["XDG_STATE_HOME": "relative"], false, "/home/ada/.local/state/shared-device"),
            ([:], false, "/home/ada/.local/state/shared-device"),
        ] as [([String: String], Bool, String)] {
            #expect(path(environment, root: isRoot) == expected)
        }
    }
}
