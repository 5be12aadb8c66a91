import CSQLite
import Glibc

/// One connection to a database's file, for one thread at a time. Every call blocks its thread until SQLite has answered.
///
/// A statement is prepared once and kept, with its text as the key: the texts are the program's own, and few. Values never stand in the text.
package final class SQLiteConnection {
    /// What the connection is for.
    package enum Access: Sendable {
        case read
        /// Reading and writing a file that exists.
        case write
        /// The same; a missing file is made, which its owner alone may read.
        case create

        fileprivate var flags: CInt {
            switch self {
            case .read: SQLITE_OPEN_READONLY
            case .write: SQLITE_OPEN_READWRITE
            case .create: SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
            }
        }
    }

    private let handle: OpaquePointer
    /// Those that no call uses at the moment.
    private var statements: [String: SQLiteStatement] = [:]

    /// - Parameter busyTimeout: how long a call waits for another connection before it fails.
    package init(path: String, _ access: Access = .write, busyTimeout: Duration = .zero) throws(SQLiteError) {
        var connection: OpaquePointer?
        // SQLite makes its log's files as this one is. The umask is the whole process's, and not this connection's to change.
        if access == .create, mknod(path, S_IFREG | 0o600, 0) == 0 { chmod(path, 0o600) }
        // Without a mutex of SQLite's own: the owner sees to it that threads take turns.
        let result = sqlite3_open_v2(path, &connection, access.flags | SQLITE_OPEN_NOMUTEX, nil)
        guard result == SQLITE_OK, let connection else {
            // A connection that could not be opened is there all the same, and has the reason.
            defer { sqlite3_close_v2(connection) }
            throw SQLiteError(connection.map { sqlite3_extended_errcode($0) } ?? result, of: connection)
        }
        handle = connection
        sqlite3_extended_result_codes(connection, 1)
        sqlite3_busy_timeout(connection, CInt(clamping: busyTimeout.milliseconds))
        let quotes = CSQLite_readDoubleQuotesAsNames(connection)
        guard quotes == SQLITE_OK else { throw SQLiteError(quotes, of: connection) }
    }

    /// SQLite keeps the connection until the last statement has ended, which is right after this.
    deinit { sqlite3_close_v2(handle) }

    // MARK: Statements

    /// Runs the statements of a text one after the other, up to the first failure. They are not kept, and their rows are dropped.
    package func execute(_ script: String) throws(SQLiteError) {
        let result = sqlite3_exec(handle, script, nil, nil, nil)
        guard result == SQLITE_OK else { throw SQLiteError(result, of: handle) }
    }

    /// Runs a statement to its end.
    package func run<each Value: SQLiteBindable>(
        _ sql: String,
        _ values: repeat each Value
    ) throws(SQLiteError) {
        let statement = try begin(sql, repeat each values)
        defer { end(statement) }
        while try statement.step() {}
    }

    /// The rows of a query.
    package func rows<each Value: SQLiteBindable, Result>(
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
    package func row<each Value: SQLiteBindable, Result>(
        _ sql: String,
        _ values: repeat each Value,
        as make: (borrowing SQLiteRow) throws -> Result
    ) throws -> Result? {
        let statement = try begin(sql, repeat each values)
        defer { end(statement) }
        return try statement.step() ? try make(SQLiteRow(statement: statement)) : nil
    }

    /// The first value of the first row; `nil` where there is none, or where it is NULL or of another type.
    package func value<each Value: SQLiteBindable, Result: SQLiteReadable>(
        _ sql: String,
        _ values: repeat each Value
    ) throws(SQLiteError) -> Result? {
        let statement = try begin(sql, repeat each values)
        defer { end(statement) }
        guard try statement.step() else { return nil }
        return Result(statement.value(of: 0))
    }

    /// How many rows the last INSERT, UPDATE or DELETE has changed.
    package var changedRows: Int { Int(sqlite3_changes64(handle)) }

    /// Takes the statement out of those that are kept: a query within a query of the same text gets another one.
    private func begin<each Value: SQLiteBindable>(
        _ sql: String,
        _ values: repeat each Value
    ) throws(SQLiteError) -> SQLiteStatement {
        var bound: [SQLiteValue] = []
        repeat bound.append((each values).sqliteValue)
        let kept = statements.removeValue(forKey: sql)
        let statement = if let kept { kept } else { try SQLiteStatement(sql, on: handle) }
        // Where this fails, the statement is prepared anew the next time.
        try statement.bind(bound)
        return statement
    }

    private func end(_ statement: SQLiteStatement) {
        statement.reset()
        statements[statement.sql] = statement
    }

    // MARK: Transactions

    /// Runs `body` in a transaction that no other connection can write beside. It is on the disk when this returns, and has not happened
    /// when this throws.
    package func write<Value>(_ body: (SQLiteConnection) throws -> Value) throws -> Value {
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

    /// Runs `body` in a transaction that sees one state of the file and changes nothing.
    package func read<Value>(_ body: (SQLiteConnection) throws -> Value) throws -> Value {
        try run("BEGIN")
        defer { rollBack() }
        return try body(self)
    }

    private func rollBack() {
        // After some failures, a full disk among them, SQLite has done so itself. Where it cannot, the next BEGIN fails, and says so.
        guard sqlite3_get_autocommit(handle) == 0 else { return }
        try? run("ROLLBACK")
    }

    /// Has the files of the write-ahead log stay when the last connection ends, for the next one to find on a full disk. The log is empty then.
    package func keepLog() throws(SQLiteError) {
        try execute("PRAGMA journal_size_limit = 0")
        var isOn: CInt = 1
        let result = sqlite3_file_control(handle, "main", SQLITE_FCNTL_PERSIST_WAL, &isOn)
        guard result == SQLITE_OK else { throw SQLiteError(result, of: handle) }
    }

    /// Copies the write-ahead log into the database's file, and cuts it to nothing: it has the earlier versions of pages.
    package func emptyLog() throws(SQLiteError) {
        let result = sqlite3_wal_checkpoint_v2(handle, nil, SQLITE_CHECKPOINT_TRUNCATE, nil, nil)
        guard result == SQLITE_OK else { throw SQLiteError(result, of: handle) }
    }
}

extension Duration {
    /// Rounded down.
    fileprivate var milliseconds: Int64 {
        let (seconds, attoseconds) = components
        return seconds * 1000 + attoseconds / 1_000_000_000_000_000
    }
}
