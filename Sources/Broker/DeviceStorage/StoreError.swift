import Glibc

/// An error of the device's database, with the failed operation, the cause and the remedy.
public struct StoreError: Error, Sendable, Hashable, CustomStringConvertible {
    public enum Code: Sendable {
        /// The directory has no database, and none was to be created.
        case notFound
        case noPermission
        /// Other users may write to the directory, or a file in it is not a regular file.
        case insecure
        case cannotCreate
        /// The file is not a database, or is inconsistent. It was not changed.
        case damaged
        /// The file is another program's database. It was not changed.
        case foreignFile
        /// A newer version of this program has written the file. It was not changed.
        case newerVersion
        /// Another process held the database for too long.
        case busy
        /// The disk is full. Nothing was changed.
        case noSpace
        case failed
    }

    public let code: Code
    /// The failed operation.
    public let attempted: String
    public let message: String
    public let remedy: String?

    public init(_ code: Code, attempted: String, message: String, remedy: String? = nil) {
        self.code = code
        self.attempted = attempted
        self.message = message
        self.remedy = remedy
    }

    /// One line: the failed operation, the cause and the remedy.
    public var description: String {
        let line = "could not \(attempted): \(message)"
        return remedy.map { "\(line); \($0)" } ?? line
    }
}

extension StoreError {
    /// Wraps `error`, which occurred during `attempted` on the database at `path`. A `StoreError` stays as it is.
    public init(_ error: any Error, attempted: String, path: String) {
        if let error = error as? StoreError {
            self = error
            return
        }
        let (code, remedy): (Code, String?) =
            switch (error as? SQLiteError)?.kind {
            case .damaged: (.damaged, Self.remedyForDamage)
            case .busy: (.busy, "try again")
            case .full: (.noSpace, "free some space and try again")
            case .notAllowed:
                (.noPermission, "run as the directory's owner, and see that its file system can be written")
            case .disk: (.failed, "look in the kernel's log for failures of the disk (journalctl --dmesg)")
            case .other, nil: (.failed, nil)
            }
        self.init(code, attempted: attempted, message: "\(path): \(error)", remedy: remedy)
    }

    /// The error of a system call on a file or directory.
    ///
    /// - Parameter other: The code of an error that is neither a missing permission nor a full disk.
    public init(system error: CInt, attempted: String, otherwise other: Code = .failed) {
        let (code, remedy): (Code, String) =
            switch error {
            case EACCES, EPERM, EROFS: (.noPermission, "run as the directory's owner, or choose another directory")
            case ENOSPC, EDQUOT: (.noSpace, "free some space and try again")
            default: (other, "choose another directory")
            }
        self.init(code, attempted: attempted, message: String(cString: strerror(error)), remedy: remedy)
    }

    public static func damaged(attempted: String, message: String) -> StoreError {
        StoreError(.damaged, attempted: attempted, message: message, remedy: remedyForDamage)
    }

    private static let remedyForDamage =
        "the file was left as it is: restore a backup, or move it and its -wal and -shm away to start with a new database"

    /// The exit status of a command that this error ends (`<sysexits.h>`).
    public var exitStatus: CInt {
        switch code {
        case .notFound: EX_NOINPUT
        case .noPermission, .insecure: EX_NOPERM
        case .cannotCreate: EX_CANTCREAT
        case .damaged, .foreignFile, .newerVersion: EX_DATAERR
        case .busy: EX_TEMPFAIL
        default: EX_IOERR
        }
    }
}
