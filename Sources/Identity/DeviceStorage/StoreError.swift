import GRDB

/// What went wrong with the device's database, what was attempted, and what to do about it.
package struct StoreError: Error, Sendable, Hashable, CustomStringConvertible {
    package enum Code: Sendable {
        /// There is no database in the directory, and none was to be made.
        case notFound
        /// This user may not read or write the database.
        case noPermission
        /// Others may write to the directory or own what is in it.
        case insecure
        /// The directory or the file cannot be made.
        case cannotCreate
        /// The file is no database, or its content contradicts itself. It was left as it is.
        case damaged
        /// The file is another program's database. It was left as it is.
        case foreignFile
        /// A newer version of this program has written the file. It was left as it is.
        case newerVersion
        /// Another process held the database for too long.
        case busy
        /// The disk is full. Nothing was changed.
        case noSpace
        /// Any other failure.
        case failed
    }

    package let code: Code
    /// What was attempted.
    package let attempted: String
    /// What happened.
    package let message: String
    /// What helps, where something is known to.
    package let remedy: String?

    package init(_ code: Code, attempted: String, message: String, remedy: String? = nil) {
        self.code = code
        self.attempted = attempted
        self.message = message
        self.remedy = remedy
    }

    /// One line: what was attempted, what happened, and the remedy.
    package var description: String {
        let line = "could not \(attempted): \(message)"
        return remedy.map { "\(line); \($0)" } ?? line
    }
}

extension StoreError {
    /// `error`, met while doing `attempted` to the database at `path`.
    package init(_ error: any Error, attempted: String, path: String) {
        if let error = error as? StoreError {
            self = error
            return
        }
        guard let error = error as? DatabaseError else {
            self.init(.failed, attempted: attempted, message: "\(path): \(error)")
            return
        }
        // Without the SQL and its arguments: those hold names.
        let message = "\(path): \(error.message ?? "SQLite result \(error.resultCode.rawValue)")"
        switch error.resultCode {
        case .SQLITE_NOTADB, .SQLITE_CORRUPT:
            self = .damaged(attempted: attempted, message: message)
        case .SQLITE_BUSY, .SQLITE_LOCKED:
            self.init(.busy, attempted: attempted, message: message, remedy: "try again")
        case .SQLITE_FULL:
            self.init(.noSpace, attempted: attempted, message: message, remedy: "free some space and try again")
        case .SQLITE_READONLY, .SQLITE_PERM, .SQLITE_AUTH, .SQLITE_CANTOPEN:
            self.init(
                .noPermission,
                attempted: attempted,
                message: message,
                remedy: "run as the directory's owner, and see that its file system can be written"
            )
        default:
            self.init(.failed, attempted: attempted, message: message)
        }
    }

    package static func damaged(attempted: String, message: String) -> StoreError {
        StoreError(
            .damaged,
            attempted: attempted,
            message: message,
            remedy: "the file was left as it is: restore a backup, or move it and its -wal and -shm away to start anew"
        )
    }
}
