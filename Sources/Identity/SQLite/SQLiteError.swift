import CSQLite
import Glibc

/// What SQLite answered in place of doing its work.
package struct SQLiteError: Error, Sendable, Hashable, CustomStringConvertible {
    /// What a caller can do something about.
    package enum Kind: Sendable {
        /// Another connection holds the database.
        case busy
        /// There is no space for more.
        case full
        /// The file is no database, or its content contradicts itself.
        case damaged
        /// This process may not read or write the file, or its file system takes no writes.
        case notAllowed
        /// The disk has failed.
        case disk
        /// Any other failure.
        case other
    }

    /// The extended result code.
    package let code: CInt
    /// SQLite's words. They name tables and columns, and never values.
    package let message: String
    /// The `errno` of a file that could not be opened, read or written; else 0.
    package let systemError: CInt

    init(code: CInt, message: String, systemError: CInt = 0) {
        self.code = code
        self.message = message
        self.systemError = systemError
    }

    /// What the connection says about its last call, which gave this code.
    init(_ code: CInt, of connection: OpaquePointer?) {
        let concernsFile = [SQLITE_IOERR, SQLITE_CANTOPEN, SQLITE_FULL].contains(code & 0xFF)
        self.init(
            code: code,
            message: String(cString: connection.map { sqlite3_errmsg($0) } ?? sqlite3_errstr(code)),
            systemError: concernsFile ? connection.map { sqlite3_system_errno($0) } ?? 0 : 0
        )
    }

    /// The kind, by the code's first eight bits, and by `errno` where the code says no more than that a file failed: the index of the
    /// write-ahead log is written through memory, and a full disk shows there as a failure.
    package var kind: Kind {
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

    /// SQLite's words, and the system's where it has some.
    package var description: String {
        systemError == 0 ? message : "\(message): \(String(cString: strerror(systemError)))"
    }
}
