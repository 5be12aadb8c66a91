import DeviceStorage
import Glibc
import NotifyCenterTestKit
import Testing

@Suite("SQLite wrapper")
struct SQLiteTests {
    private let directory: TemporaryDirectory
    private let connection: SQLiteConnection

    init() throws {
        directory = try TemporaryDirectory("sqlite-tests")
        connection = try SQLiteConnection(path: directory.file("file"), .create)
        try connection.execute("PRAGMA journal_mode = WAL; CREATE TABLE t (a, b, c, d, e)")
    }

    private func failure(_ body: () throws -> Void) -> SQLiteError? {
        #expect(throws: SQLiteError.self) { try body() }
    }

    private var count: Int? { get throws { try connection.value("SELECT count(*) FROM t") } }

    @Test("a value is read unchanged; empty values are not NULL, and NULL is nil")
    func values() throws {
        let text = "a\u{0}é"
        try connection.run("INSERT INTO t VALUES (?, ?, ?, ?, ?)", Int64.min, 0.5, text, [0, 255] as [UInt8], true)
        let row: (Int64?, Double?, String?, [UInt8]?, Bool?)? = try connection.row("SELECT * FROM t") { row in
            (row["a"], row["b"], row["c"], row["d"], row["e"])
        }
        let found = try #require(row)
        #expect(found == (.min, 0.5, text, [0, 255], true))
        try connection.run("DELETE FROM t")
        try connection.run("INSERT INTO t VALUES (?, ?, ?, 1, 2)", "", [] as [UInt8], nil as String?)
        let sql = "SELECT a, b, c IS NULL, c FROM t"
        let empty: (String?, [UInt8]?, Bool?, String?)? = try connection.row(sql) { ($0[0], $0[1], $0[2], $0[3]) }
        #expect(try #require(empty) == ("", [], true, nil))
    }

    @Test("a new file and its log have mode 0600, and the umask stays")
    func makesPrivateFiles() throws {
        for name in ["file", "file-wal", "file-shm"] { #expect(mode(of: directory.file(name)) == 0o600, "\(name)") }
        let other = directory.file("other")
        close(open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0o644))
        #expect(mode(of: other) == 0o644)
    }

    @Test("values of other types, overflows and missing columns are nil")
    func otherTypes() throws {
        try connection.run("INSERT INTO t VALUES ('x', -1, x'FF', 2.5, 7)")
        _ = try connection.row("SELECT * FROM t") { row in
            #expect(row["a"] as Int? == nil && row["a"] as Double? == nil && row["a"] as [UInt8]? == nil)
            #expect(row["b"] as UInt32? == nil && row["b"] as UInt64? == nil && row["b"] as Int? == -1)
            #expect(row["c"] as String? == nil && row["d"] as Int? == nil && row["e"] as Bool? == nil)
            #expect(row["e"] as Double? == 7, "a whole number is a number, too")
            #expect(row["missing"] as Int? == nil && row[9] as Int? == nil)
        }
        try connection.run("UPDATE t SET a = ?", UInt64.max)
        #expect(try connection.value("SELECT a FROM t") == Int64.max)
    }

    @Test("a failed transaction changes nothing, and the next one begins")
    func rollback() throws {
        struct Failure: Error {}
        #expect(throws: Failure.self) {
            try connection.write { db in
                try db.run("INSERT INTO t (a) VALUES (1)")
                throw Failure()
            }
        }
        try connection.execute("CREATE UNIQUE INDEX one ON t (a)")
        let error = failure {
            try connection.write { db in
                try db.run("INSERT INTO t (a) VALUES (1)")
                // SQLite rolls back by itself.
                try db.run("INSERT OR ROLLBACK INTO t (a) VALUES (1)")
            }
        }
        #expect(error?.kind == .other)
        #expect(try count == 0)
        try connection.write { db in try db.run("INSERT INTO t (a) VALUES (1)") }
        #expect(try count == 1)
        #expect(connection.changedRows == 1)
    }

    @Test("a read transaction sees one snapshot and changes nothing")
    func reading() throws {
        let other = try SQLiteConnection(path: directory.file("file"))
        try connection.read { db in
            let before: Int? = try db.value("SELECT count(*) FROM t")
            try other.run("INSERT INTO t (a) VALUES (1)")
            #expect(before == 0)
            let after: Int? = try db.value("SELECT count(*) FROM t")
            #expect(after == 0)
        }
        try connection.read { db in try db.run("DELETE FROM t") }
        #expect(try count == 1)
    }

    @Test("a cached statement follows a schema change, and a nested query has its own")
    func schemaChange() throws {
        #expect(try connection.value("SELECT count(*) FROM t") == 0)
        try SQLiteConnection(path: directory.file("file"))
            .execute("DROP TABLE t; CREATE TABLE t (a); INSERT INTO t VALUES (1)")
        #expect(try connection.value("SELECT count(*) FROM t") == 1)
        for number in 2...3 { try connection.run("INSERT INTO t (a) VALUES (?)", number) }
        let sql = "SELECT a FROM t ORDER BY a"
        let pairs = try connection.rows(sql) { outer in
            let number: Int? = outer["a"]
            return try connection.rows(sql) { inner in "\(number ?? 0)\(inner["a"] as Int? ?? 0)" }
        }
        #expect(pairs.flatMap { $0 } == ["11", "12", "13", "21", "22", "23", "31", "32", "33"])
    }

    @Test("several statements are a script, and rejected as one statement")
    func severalStatements() throws {
        let text = "INSERT INTO t (a) VALUES (1); INSERT INTO t (a) VALUES (2)"
        for text in [text, ""] { #expect(failure { try connection.run(text) } != nil) }
        #expect(try count == 0)
        try connection.execute(text)
        #expect(try count == 2)
    }

    @Test("each failure has its kind, and its message contains no value")
    func kinds() throws {
        try connection.execute("CREATE UNIQUE INDEX one ON t (a); INSERT INTO t (a) VALUES ('quentin')")
        let taken = failure { try connection.run("INSERT INTO t (a) VALUES (?)", "quentin") }
        #expect(taken?.kind == .other && taken?.description.contains("quentin") == false)
        #expect(taken?.code != 19, "the code is the extended one")

        let reader = try SQLiteConnection(path: directory.file("file"), .read)
        #expect(failure { try reader.run("DELETE FROM t") }?.kind == .notAllowed)
        let missing = failure { _ = try SQLiteConnection(path: directory.file("missing/file"), .create) }
        #expect(missing?.kind == .notAllowed && missing?.description.contains("No such file") == true)

        try connection.write { _ in
            let other = try SQLiteConnection(path: directory.file("file"), busyTimeout: .milliseconds(5))
            let error = failure { try other.run("DELETE FROM t") }
            #expect(error?.kind == .busy)
        }

        try connection.execute("PRAGMA max_page_count = 1")
        let full = failure { try connection.run("INSERT INTO t (a) VALUES (zeroblob(100000))") }
        #expect(full?.kind == .full)
        #expect(try count == 1)

        try directory.write(String(repeating: "text", count: 9999), to: "text")
        let text = directory.file("text")
        #expect(failure { try SQLiteConnection(path: text).run("CREATE TABLE t (a)") }?.kind == .damaged)
        // A word in double quotes is a name, never a string.
        #expect(failure { try connection.run("INSERT INTO t (a) VALUES (\"oops\")") }?.kind == .other)
    }

    @Test("the last connection removes the log, even with cached statements")
    func end() throws {
        let path = directory.file("other")
        do {
            let connection = try SQLiteConnection(path: path, .create)
            try connection.execute("PRAGMA journal_mode = WAL; CREATE TABLE t (a)")
            try connection.run("INSERT INTO t VALUES (1)")
            #expect(access(path + "-wal", F_OK) == 0)
        }
        #expect(access(path + "-wal", F_OK) != 0)
    }
}
