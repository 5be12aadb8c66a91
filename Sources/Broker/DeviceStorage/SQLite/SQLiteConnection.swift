import CSQLite
import Glibc

/// A connection to a database file, for one thread at a time. Every call blocks its thread until SQLite has finished.
/// Prepared statements are cached by their text: the texts are constants, and few.
public final class SQLiteConnection {
    public enum Access: Sendable {
        case read
        /// Reads and writes an existing file.
        case write
        /// Reads and writes; creates a missing file with mode 0600.
        case create
    }

    private let handle: OpaquePointer
    /// The cached statements that no call uses at the moment.
    private var statements: [String: SQLiteStatement] = [:]

    /// - Parameter busyTimeout: How long a call waits for another connection before it fails.
    public init(path: String, _ access: Access = .write, busyTimeout: Duration = .zero) throws(SQLiteError) {
        var connection: OpaquePointer?
        // SQLite gives the files of its log the mode of this file. The umask stays, because the whole process has it.
        if access == .create, mknod(path, S_IFREG | 0o600, 0) == 0 { chmod(path, 0o600) }
        let flags =
            switch access {
            case .read: SQLITE_OPEN_READONLY
            case .write: SQLITE_OPEN_READWRITE
            case .create: SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
            }
        // Without SQLite's own mutex: the owner serialises the calls.
        let result = sqlite3_open_v2(path, &connection, flags | SQLITE_OPEN_NOMUTEX, nil)
        guard result == SQLITE_OK, let connection else {
            // SQLite returns a connection even if it cannot be opened. It holds the reason, and has to be closed.
            defer { sqlite3_close_v2(connection) }
            throw SQLiteError(connection.map { sqlite3_extended_errcode($0) } ?? result, of: connection)
        }
        handle = connection
        sqlite3_extended_result_codes(connection, 1)
        sqlite3_busy_timeout(connection, CInt(clamping: Int64(busyTimeout / .milliseconds(1))))
        let quotes = CSQLite_readDoubleQuotesAsNames(connection)
        guard quotes == SQLITE_OK else { throw SQLiteError(quotes, of: connection) }
    }

    /// SQLite keeps the connection until its last statement is finalised, which follows at once.
    deinit { sqlite3_close_v2(handle) }

    // MARK: Statements

    /// Runs the statements of a script in order, until the first failure. Drops their rows.
    public func execute(_ script: String) throws(SQLiteError) {
        let result = sqlite3_exec(handle, script, nil, nil, nil)
        guard result == SQLITE_OK else { throw SQLiteError(result, of: handle) }
    }

    public func run<each Value: SQLiteBindable>(_ sql: String, _ values: repeat each Value) throws(SQLiteError) {
        let statement = try begin(sql, repeat each values)
        defer { end(statement) }
        while try statement.step() {}
    }

    public func rows<each Value: SQLiteBindable, Result>(
        _ sql: String,
        _ values: repeat each Value,
        as make: (borrowing SQLiteRow) throws -> Result
    ) throws -> [Result] {
        let statement = try begin(sql, repeat each values)
        defer { end(statement) }
        var results: [Result] = []
        while try statement.step() { results.append(try make(SQLiteRow(statement: statement))) }
        return results
    }

    /// The first row of a query; `nil` if it has none.
    public func row<each Value: SQLiteBindable, Result>(
        _ sql: String,
        _ values: repeat each Value,
        as make: (borrowing SQLiteRow) throws -> Result
    ) throws -> Result? {
        let statement = try begin(sql, repeat each values)
        defer { end(statement) }
        return try statement.step() ? try make(SQLiteRow(statement: statement)) : nil
    }

    /// The first value of the first row; `nil` if there is no row, or if the value is NULL or of another type.
    public func value<each Value: SQLiteBindable, Result: SQLiteReadable>(
        _ sql: String,
        _ values: repeat each Value
    ) throws(SQLiteError) -> Result? {
        let statement = try begin(sql, repeat each values)
        defer { end(statement) }
        guard try statement.step() else { return nil }
        return Result(statement.value(of: 0))
    }

    /// The number of rows that the last INSERT, UPDATE or DELETE has changed.
    public var changedRows: Int { Int(sqlite3_changes64(handle)) }

    /// Takes the statement out of the cache, so that a nested query with the same text gets another statement.
    private func begin<each Value: SQLiteBindable>(
        _ sql: String,
        _ values: repeat each Value
    ) throws(SQLiteError) -> SQLiteStatement {
        var bound: [SQLiteValue] = []
        repeat bound.append((each values).sqliteValue)
        let kept = statements.removeValue(forKey: sql)
        let statement = if let kept { kept } else { try SQLiteStatement(sql, on: handle) }
        // If this fails, the statement is prepared again next time.
        try statement.bind(bound)
        return statement
    }

    private func end(_ statement: SQLiteStatement) {
        statement.reset()
        statements[statement.sql] = statement
    }

    // MARK: Transactions

    /// Runs `body` in a transaction, which excludes other writers and is on the disk on return. An error rolls it back.
    public func write<Value>(_ body: (SQLiteConnection) throws -> Value) throws -> Value {
        try run("BEGIN IMMEDIATE")
        do {
            let value = try body(self)
            try run("COMMIT")
            return value
        } catch {
            rollBack()
            throw error
        }
    }

    /// Runs `body` in a read-only transaction, which sees a consistent snapshot.
    public func read<Value>(_ body: (SQLiteConnection) throws -> Value) throws -> Value {
        try run("BEGIN")
        defer { rollBack() }
        return try body(self)
    }

    private func rollBack() {
        // After some failures SQLite has rolled back already. If this fails, the next BEGIN reports it.
        if sqlite3_get_autocommit(handle) == 0 { try? run("ROLLBACK") }
    }

    /// Keeps the files of the write-ahead log, empty, when the last connection closes: a full disk has no room for
    /// them.
    public func keepLog() throws(SQLiteError) {
        try execute("PRAGMA journal_size_limit = 0")
        var isOn: CInt = 1
        let result = sqlite3_file_control(handle, "main", SQLITE_FCNTL_PERSIST_WAL, &isOn)
        guard result == SQLITE_OK else { throw SQLiteError(result, of: handle) }
    }

    /// Copies the write-ahead log into the file, and truncates the log, which contains earlier versions of pages.
    public func emptyLog() throws(SQLiteError) {
        let result = sqlite3_wal_checkpoint_v2(handle, nil, SQLITE_CHECKPOINT_TRUNCATE, nil, nil)
        guard result == SQLITE_OK else { throw SQLiteError(result, of: handle) }
    }
}
