import CSQLite
import Glibc

public struct SQLiteError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The kinds of errors that a caller can act on.
    public enum Kind: Sendable {
        /// Another connection holds the database.
        case busy
        /// The disk is full.
        case full
        /// The file is not a database, or is inconsistent.
        case damaged
        /// This process may not read or write the file, or the file system is read-only.
        case notAllowed
        /// The disk has failed.
        case disk
        case other
    }

    /// The extended result code.
    public let code: CInt
    /// SQLite's message. It may name tables and columns, but never contains values.
    public let message: String
    /// The `errno` of a file operation that failed; otherwise 0.
    public let systemError: CInt

    init(code: CInt, message: String, systemError: CInt = 0) {
        (self.code, self.message, self.systemError) = (code, message, systemError)
    }

    /// The content of the file makes no sense.
    public static func damaged(_ message: String) -> SQLiteError { SQLiteError(code: SQLITE_CORRUPT, message: message) }

    /// The error of the connection's last call, which returned this code.
    init(_ code: CInt, of connection: OpaquePointer?) {
        let concernsFile = [SQLITE_IOERR, SQLITE_CANTOPEN, SQLITE_FULL].contains(code & 0xFF)
        self.init(
            code: code,
            message: String(cString: connection.map { sqlite3_errmsg($0) } ?? sqlite3_errstr(code)),
            systemError: concernsFile ? connection.map { sqlite3_system_errno($0) } ?? 0 : 0
        )
    }

    /// The kind, from the primary result code. For SQLITE_IOERR also from `errno`: SQLite writes the index of the
    /// write-ahead log through mapped memory, where a full disk appears as an I/O error.
    public var kind: Kind {
        switch code & 0xFF {
        case SQLITE_BUSY, SQLITE_LOCKED, SQLITE_PROTOCOL: .busy
        case SQLITE_FULL: .full
        case SQLITE_CORRUPT, SQLITE_NOTADB: .damaged
        case SQLITE_READONLY, SQLITE_PERM, SQLITE_AUTH, SQLITE_CANTOPEN: .notAllowed
        case SQLITE_IOERR:
            switch systemError {
            case ENOSPC, EDQUOT: .full
            case EACCES, EPERM, EROFS: .notAllowed
            default: .disk
            }
        default: .other
        }
    }

    /// SQLite's message, and the system's if there is one.
    public var description: String {
        systemError == 0 ? message : "\(message): \(String(cString: strerror(systemError)))"
    }
}
