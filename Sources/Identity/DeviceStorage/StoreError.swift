import SQLite

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
        guard let error = error as? SQLiteError else {
            self.init(.failed, attempted: attempted, message: "\(path): \(error)")
            return
        }
        let message = "\(path): \(error)"
        let (code, remedy): (Code, String?) =
            switch error.kind {
            case .damaged: (.damaged, Self.remedyForDamage)
            case .busy: (.busy, "try again")
            case .full: (.noSpace, "free some space and try again")
            case .notAllowed:
                (.noPermission, "run as the directory's owner, and see that its file system can be written")
            case .disk: (.failed, "look in the kernel's log for failures of the disk (journalctl --dmesg)")
            case .other: (.failed, nil)
            }
        self.init(code, attempted: attempted, message: message, remedy: remedy)
    }

    package static func damaged(attempted: String, message: String) -> StoreError {
        StoreError(.damaged, attempted: attempted, message: message, remedy: remedyForDamage)
    }

    private static let remedyForDamage =
        "the file was left as it is: restore a backup, or move it and its -wal and -shm away to start anew"
}
