import Glibc

/// Creates directories and files that only their owner may read, and rejects any that other users can tamper with.
///
/// Files are created and checked by name, never opened: closing any descriptor of a database file drops the locks that
/// SQLite holds on it elsewhere in this process.
public enum PrivateFiles {
    /// Prepares a directory for secrets at `path`.
    ///
    /// Creates a missing directory and its missing parents with mode 0700. A new directory never has more rights,
    /// whatever the umask. An existing directory keeps its mode, which an administrator may have chosen, but is
    /// rejected if other users may write to it.
    ///
    /// - Throws: ``StoreError``: `insecure`, `noPermission`, `noSpace`, `cannotCreate`.
    public static func prepareDirectory(_ path: String) throws(StoreError) {
        if mkdir(path, 0o700) == 0 {
            // mkdir applies the umask to the mode.
            guard chmod(path, 0o700) == 0 else { throw failure(errno, creating: path) }
            return
        }
        switch errno {
        case EEXIST: try checkDirectory(path)
        case ENOENT:
            guard let slash = path.lastIndex(of: "/"), slash != path.startIndex else {
                throw failure(ENOENT, creating: path)
            }
            try prepareParent(String(path[..<slash]))
            guard mkdir(path, 0o700) == 0 || errno == EEXIST else { throw failure(errno, creating: path) }
            guard chmod(path, 0o700) == 0 else { throw failure(errno, creating: path) }
        case let code: throw failure(code, creating: path)
        }
    }

    /// Prepares a file for secrets at `path`, in a prepared directory. Creates a missing file empty with mode 0600, and
    /// changes the mode of an existing one to 0600.
    ///
    /// - Returns: Whether the file exists now; `false` only without `create`.
    public static func prepareFile(_ path: String, create: Bool) throws(StoreError) -> Bool {
        var info = stat()
        if lstat(path, &info) != 0 {
            let code = errno
            guard code == ENOENT else { throw failure(code, opening: path) }
            guard create else { return false }
            if mknod(path, S_IFREG | 0o600, 0) != 0, errno != EEXIST { throw failure(errno, creating: path) }
            guard lstat(path, &info) == 0 else { throw failure(errno, opening: path) }
        }
        guard info.st_mode & S_IFMT == S_IFREG else {
            throw StoreError(
                .insecure,
                attempted: "open \(path)",
                message: "it is not a regular file",
                remedy: "move it away, or choose another directory"
            )
        }
        try checkOwner(of: path, info)
        if info.st_mode & 0o777 != 0o600, chmod(path, 0o600) != 0 { throw failure(errno, opening: path) }
        return true
    }

    private static func prepareParent(_ path: String) throws(StoreError) {
        var info = stat()
        // An existing ancestor is not checked: /var and /home belong to root.
        if stat(path, &info) == 0 { return }
        try prepareDirectory(path)
    }

    /// Rejects a directory whose content other users can replace. A missing directory passes; the caller notices it.
    ///
    /// - Throws: ``StoreError``: `insecure`, `noPermission`.
    public static func checkDirectory(_ path: String) throws(StoreError) {
        var info = stat()
        guard stat(path, &info) == 0 else {
            let code = errno
            if code == ENOENT { return }
            throw failure(code, opening: path)
        }
        guard info.st_mode & S_IFMT == S_IFDIR else { throw failure(ENOTDIR, creating: path) }
        try checkOwner(of: path, info)
        guard info.st_mode & 0o022 == 0 else {
            throw StoreError(
                .insecure,
                attempted: "use the directory \(path)",
                message: "users other than its owner may write to it",
                remedy: "choose another directory, or run: chmod 700 \(path)"
            )
        }
    }

    private static func checkOwner(of path: String, _ info: stat) throws(StoreError) {
        // This applies to root as well. Root's files in another user's directory would be closed to that user, and a
        // link there could lead root anywhere.
        guard info.st_uid == geteuid() else {
            throw StoreError(
                .noPermission,
                attempted: "use \(path)",
                message: "it belongs to user \(info.st_uid)",
                remedy: "run as that user, or choose another directory"
            )
        }
    }

    private static func failure(_ code: CInt, creating path: String) -> StoreError {
        failure(code, attempted: "create \(path)", otherwise: .cannotCreate)
    }

    private static func failure(_ code: CInt, opening path: String) -> StoreError {
        failure(code, attempted: "open \(path)", otherwise: .failed)
    }

    public static func failure(_ code: CInt, attempted: String, otherwise: StoreError.Code) -> StoreError {
        let message = String(cString: strerror(code))
        return switch code {
        case EACCES, EPERM, EROFS:
            StoreError(
                .noPermission,
                attempted: attempted,
                message: message,
                remedy: "run as the directory's owner, or choose another directory"
            )
        case ENOSPC, EDQUOT:
            StoreError(.noSpace, attempted: attempted, message: message, remedy: "free some space and try again")
        default: StoreError(otherwise, attempted: attempted, message: message, remedy: "choose another directory")
        }
    }
}

/// The default directory of the device's state, for the broker and its administration.
public enum StateDirectory {
    public static let environmentVariable = "SHARED_DEVICE_STATE"
    /// The directory of a broker that runs as a system service.
    public static let ofSystem = "/var/lib/shared-device"

    /// The directory for a user with this ID and these variables: `SHARED_DEVICE_STATE`; else `/var/lib/shared-device`
    /// for root; else `shared-device` in `XDG_STATE_HOME`; else in `~/.local/state`. A relative `XDG_STATE_HOME` is
    /// ignored, as the XDG specification requires.
    public static func path(environment: [String: String], effectiveUser: UInt32, home: String) -> String {
        if let path = environment[environmentVariable], !path.isEmpty { return path }
        if effectiveUser == 0 { return ofSystem }
        if let base = environment["XDG_STATE_HOME"], base.hasPrefix("/") { return base + "/shared-device" }
        return home + "/.local/state/shared-device"
    }
}

/// Prevents two processes from creating or migrating a database at once. SQLite's own locks do not: the change to WAL
/// and a chain of migrations are several transactions each.
///
/// The kernel releases the lock when the process ends, for whatever reason.
struct OpeningLock: ~Copyable {
    private let descriptor: CInt

    /// Waits for the lock file at `path`, which must exist.
    init(path: String, timeout: Duration) throws(StoreError) {
        let attempted = "lock \(path)"
        let descriptor = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW)
        guard descriptor >= 0 else { throw PrivateFiles.failure(errno, attempted: attempted, otherwise: .failed) }
        let deadline = ContinuousClock.now + timeout
        while flock(descriptor, LOCK_EX | LOCK_NB) != 0 {
            let code = errno
            if code == EINTR { continue }
            guard code == EWOULDBLOCK else {
                close(descriptor)
                throw PrivateFiles.failure(code, attempted: attempted, otherwise: .failed)
            }
            guard ContinuousClock.now < deadline else {
                close(descriptor)
                throw StoreError(
                    .busy,
                    attempted: attempted,
                    message: "another process has held it for \(timeout)",
                    remedy: "see with fuser which process it is, and try again"
                )
            }
            usleep(10_000)
        }
        self.descriptor = descriptor
    }

    deinit { close(descriptor) }
}

/// A lock that keeps a second broker out of a state directory. The kernel releases it with this object, or when the
/// process ends.
public final class ServiceLock: Sendable {
    private let descriptor: CInt

    /// - Throws: ``StoreError``; `busy` if another broker holds it.
    public init(directory: String) throws(StoreError) {
        let attempted = "keep \(directory) to this broker"
        let descriptor = open(Self.path(in: directory), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw PrivateFiles.failure(errno, attempted: attempted, otherwise: .failed) }
        var lock = Self.wholeFile
        guard fcntl(descriptor, Self.take, &lock) == 0 else {
            let code = errno
            close(descriptor)
            guard code == EAGAIN || code == EACCES else {
                throw PrivateFiles.failure(code, attempted: attempted, otherwise: .failed)
            }
            throw StoreError(
                .busy,
                attempted: attempted,
                message: "another broker uses it",
                remedy: "end the other broker, or give this broker another state directory"
            )
        }
        self.descriptor = descriptor
    }

    deinit { close(descriptor) }

    /// Whether a broker uses this directory at the moment. Takes no lock, which could keep out a broker that starts.
    public static func isHeld(in directory: String) -> Bool {
        let descriptor = open(path(in: directory), O_RDWR | O_CLOEXEC | O_NOFOLLOW)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        var lock = wholeFile
        return fcntl(descriptor, ask, &lock) == 0 && lock.l_type != Int16(F_UNLCK)
    }

    /// F_OFD_SETLK and F_OFD_GETLK (fcntl(2)), which Swift's Glibc lacks. flock(2) cannot query a lock without taking
    /// it.
    private static let (take, ask): (CInt, CInt) = (37, 36)

    private static var wholeFile: flock {
        flock(l_type: Int16(F_WRLCK), l_whence: Int16(SEEK_SET), l_start: 0, l_len: 0, l_pid: 0)
    }

    private static func path(in directory: String) -> String { "\(directory)/shared-device-broker.lock" }
}
