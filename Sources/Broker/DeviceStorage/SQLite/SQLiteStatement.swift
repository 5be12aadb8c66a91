import CSQLite

/// A prepared statement. Its last reference finalises it, even after the connection is closed.
final class SQLiteStatement {
    let sql: String
    private let handle: OpaquePointer
    private lazy var columns: [String: CInt] = (0..<sqlite3_column_count(handle)).reduce(into: [:]) { columns, column in
        if let name = sqlite3_column_name(handle, column) { columns[String(cString: name)] = column }
    }

    /// Prepares the text, which must contain exactly one statement.
    init(_ sql: String, on connection: OpaquePointer) throws(SQLiteError) {
        var statement: OpaquePointer?
        var isOne = false
        let result = sql.withCString { text in
            var rest: UnsafePointer<CChar>?
            let flags = CUnsignedInt(SQLITE_PREPARE_PERSISTENT)
            let result = sqlite3_prepare_v3(connection, text, -1, flags, &statement, &rest)
            isOne = rest?.pointee == 0
            return result
        }
        guard result == SQLITE_OK else { throw SQLiteError(result, of: connection) }
        guard let statement else { throw SQLiteError(code: SQLITE_MISUSE, message: "the text has no statement") }
        handle = statement
        self.sql = sql
        guard isOne else { throw SQLiteError(code: SQLITE_MISUSE, message: "the text has several statements") }
    }

    deinit { sqlite3_finalize(handle) }

    func bind(_ values: [SQLiteValue]) throws(SQLiteError) {
        let transient = CSQLite_transient()
        for (index, value) in values.enumerated() {
            let parameter = CInt(index + 1)
            let result =
                switch value {
                case .null: sqlite3_bind_null(handle, parameter)
                case .integer(let number): sqlite3_bind_int64(handle, parameter, number)
                case .real(let number): sqlite3_bind_double(handle, parameter, number)
                case .text(let text):
                    sqlite3_bind_text64(handle, parameter, text, UInt64(text.utf8.count), transient, UInt8(SQLITE_UTF8))
                case .blob(let bytes): sqlite3_bind_blob64(handle, parameter, bytes, UInt64(bytes.count), transient)
                }
            guard result == SQLITE_OK else { throw failure(result) }
        }
    }

    /// Advances to the next row. Returns `false` at the end.
    func step() throws(SQLiteError) -> Bool {
        switch sqlite3_step(handle) {
        case SQLITE_ROW: return true
        case SQLITE_DONE: return false
        case let result: throw failure(result)
        }
    }

    /// Ends the run. Clears the values, because they may be names of people.
    func reset() {
        // The result repeats the error of the last step, which was already thrown.
        sqlite3_reset(handle)
        sqlite3_clear_bindings(handle)
    }

    private func failure(_ result: CInt) -> SQLiteError { SQLiteError(result, of: sqlite3_db_handle(handle)) }

    // MARK: The current row

    func value(of column: CInt) -> SQLiteValue {
        switch sqlite3_column_type(handle, column) {
        case SQLITE_INTEGER: .integer(sqlite3_column_int64(handle, column))
        case SQLITE_FLOAT: .real(sqlite3_column_double(handle, column))
        case SQLITE_TEXT: .text(String(decoding: bytes(sqlite3_column_text(handle, column), of: column), as: UTF8.self))
        case SQLITE_BLOB: .blob(Array(bytes(sqlite3_column_blob(handle, column), of: column)))
        default: .null
        }
    }

    func value(of column: String) -> SQLiteValue { columns[column].map { value(of: $0) } ?? .null }

    /// Valid until the next step. SQLite requires the pointer to be read before the count.
    private func bytes(_ start: UnsafeRawPointer?, of column: CInt) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: start, count: Int(sqlite3_column_bytes(handle, column)))
    }
}

/// One row of a result. It can be neither kept nor copied, because the next step overwrites it.
public struct SQLiteRow: ~Copyable {
    let statement: SQLiteStatement

    /// The value of the column; `nil` if it is NULL or of another type, or if there is no such column.
    public subscript<Value: SQLiteReadable>(_ column: String) -> Value? { Value(statement.value(of: column)) }

    /// The case whose raw value the column has; `nil` also for any other value.
    public subscript<Word: RawRepresentable<String>>(_ column: String) -> Word? {
        String(statement.value(of: column)).flatMap(Word.init)
    }

    /// The value of the column at this index, from 0.
    public subscript<Value: SQLiteReadable>(_ column: Int) -> Value? { Value(statement.value(of: CInt(column))) }
}
