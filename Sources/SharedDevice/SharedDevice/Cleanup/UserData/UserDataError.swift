import Glibc

/// Why a ``UserDataDirectory`` could not do what it was asked: what was attempted, on which path, what happened, and what helps.
public struct UserDataError: Error, Sendable, Hashable, CustomStringConvertible {
    /// What was attempted, for instance “remove”.
    public let attempted: String
    /// The file or directory that it failed at.
    public let path: String
    /// The system's error number; 0 where the reason is not the system's.
    public let code: Int32
    /// What happened.
    public let reason: String
    /// What helps.
    public let remedy: String

    /// One line.
    public var description: String { "could not \(attempted) \(path): \(reason). \(remedy)" }

    /// The failure that `errno` tells of.
    init(_ attempted: String, _ path: String) {
        let code = errno
        self.init(attempted, path, code: code, reason: String(cString: strerror(code)), remedy: Self.remedy(code))
    }

    init(_ attempted: String, _ path: String, code: Int32 = 0, reason: String, remedy: String) {
        self.attempted = attempted
        self.path = path
        self.code = code
        self.reason = reason
        self.remedy = remedy
    }

    /// A part of the tree is on another file system: its files are somebody else's to remove.
    static func mountPoint(_ path: String) -> UserDataError {
        UserDataError("remove", path, code: EBUSY, reason: "something is mounted there", remedy: remedy(EBUSY))
    }

    private static func remedy(_ code: Int32) -> String {
        switch code {
        case EACCES, EPERM:
            "Give it and its directory to the user that runs this app (chown), and let it be changed (lsattr, chattr -i -a)"
        case EROFS: "Make the file system writable"
        case EBUSY: "Unmount what is mounted there"
        case EXDEV: "Keep “users” and “tombstones” on one file system"
        case ENOSPC, EDQUOT: "Free some space on its file system"
        case ENOTDIR, ELOOP: "Move away what is there in the place of a directory"
        case EMFILE, ENFILE: "Close files that are not needed, or raise the limit of open files"
        case EIO: "Check the disk"
        default: "See what keeps it from being done, and try again"
        }
    }
}
