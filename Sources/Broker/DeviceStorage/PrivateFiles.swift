import Glibc

/// Creates directories and files that only their owner may read, and rejects any that other users can tamper with.
///
/// Files are created and checked by name, never opened: closing any descriptor of a database file drops the locks that
/// SQLite holds on it elsewhere in this process.
public enum PrivateFiles {
    /// Creates a directory for secrets, and its missing parents, with mode 0700 whatever the umask. An existing
    /// directory keeps its mode, which an administrator may have chosen, but is rejected if other users may write to
    /// it.
    ///
    /// - Throws: ``StoreError``: `insecure`, `noPermission`, `noSpace`, `cannotCreate`.
    public static func prepareDirectory(_ path: String) throws(StoreError) {
        var code = mkdir(path, 0o700) == 0 ? 0 : errno
        if code == EEXIST { return try checkDirectory(path) }
        if code == ENOENT, let slash = path.lastIndex(of: "/"), slash != path.startIndex {
            let parent = String(path[..<slash])
            var info = stat()
            // An existing ancestor is not checked: /var and /home belong to root.
            if stat(parent, &info) != 0 { try prepareDirectory(parent) }
            code = mkdir(path, 0o700) == 0 || errno == EEXIST ? 0 : errno
        }
        // mkdir applies the umask to the mode.
        if code == 0, chmod(path, 0o700) != 0 { code = errno }
        guard code == 0 else { throw failure(code, creating: path) }
    }

    /// Creates an empty file for secrets with mode 0600, or gives an existing file that mode. Returns whether the file
    /// exists now; `false` only without `create`.
    public static func prepareFile(_ path: String, create: Bool) throws(StoreError) -> Bool {
        let attempted = "open \(path)"
        var info = stat()
        if lstat(path, &info) != 0 {
            guard errno == ENOENT else { throw StoreError(system: errno, attempted: attempted) }
            guard create else { return false }
            if mknod(path, S_IFREG | 0o600, 0) != 0, errno != EEXIST { throw failure(errno, creating: path) }
            guard lstat(path, &info) == 0 else { throw StoreError(system: errno, attempted: attempted) }
        }
        guard info.st_mode & S_IFMT == S_IFREG else {
            let remedy = "move it away, or choose another directory"
            throw StoreError(.insecure, attempted: attempted, message: "it is not a regular file", remedy: remedy)
        }
        try checkOwner(of: path, info)
        guard info.st_mode & 0o777 == 0o600 || chmod(path, 0o600) == 0 else {
            throw StoreError(system: errno, attempted: attempted)
        }
        return true
    }

    /// Rejects a directory whose content other users can replace. A missing directory passes; the caller notices it.
    ///
    /// - Throws: ``StoreError``: `insecure`, `noPermission`.
    public static func checkDirectory(_ path: String) throws(StoreError) {
        var info = stat()
        guard stat(path, &info) == 0 else {
            if errno == ENOENT { return }
            throw StoreError(system: errno, attempted: "open \(path)")
        }
        guard info.st_mode & S_IFMT == S_IFDIR else { throw failure(ENOTDIR, creating: path) }
        try checkOwner(of: path, info)
        guard info.st_mode & 0o022 == 0 else {
            let message = "users other than its owner may write to it"
            let remedy = "choose another directory, or run: chmod 700 \(path)"
            throw StoreError(.insecure, attempted: "use the directory \(path)", message: message, remedy: remedy)
        }
    }

    private static func checkOwner(of path: String, _ info: stat) throws(StoreError) {
        // This applies to root as well. Root's files in another user's directory would be closed to that user, and a
        // link there could lead root anywhere.
        guard info.st_uid == geteuid() else {
            let message = "it belongs to user \(info.st_uid)"
            let remedy = "run as that user, or choose another directory"
            throw StoreError(.noPermission, attempted: "use \(path)", message: message, remedy: remedy)
        }
    }

    private static func failure(_ code: CInt, creating path: String) -> StoreError {
        StoreError(system: code, attempted: "create \(path)", otherwise: .cannotCreate)
    }
}

/// The default directory of the device's state, for the broker and its administration.
public enum StateDirectory {
    public static let environmentVariable = "SHARED_DEVICE_STATE"
    /// The directory of a broker that runs as a system service.
    public static let ofSystem = "/var/lib/shared-device"

    /// `SHARED_DEVICE_STATE`; else `/var/lib/shared-device` for root; else `shared-device` in `XDG_STATE_HOME` (ignored
    /// if relative, as the XDG specification requires); else in `~/.local/state`.
    public static func path(environment: [String: String], effectiveUser: UInt32, home: String) -> String {
        if let path = environment[environmentVariable], !path.isEmpty { return path }
        if effectiveUser == 0 { return ofSystem }
        if let base = environment["XDG_STATE_HOME"], base.hasPrefix("/") { return base + "/shared-device" }
        return home + "/.local/state/shared-device"
    }
}

/// Prevents two processes from creating or migrating a database at once. SQLite's own locks do not: the change to WAL
/// and a chain of migrations are several transactions each. The kernel releases the lock when the process ends.
struct OpeningLock: ~Copyable {
    private let descriptor: CInt

    /// Waits for the lock file at `path`, which must exist.
    init(path: String, timeout: Duration) throws(StoreError) {
        let attempted = "lock \(path)"
        let descriptor = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW)
        guard descriptor >= 0 else { throw StoreError(system: errno, attempted: attempted) }
        let deadline = ContinuousClock.now + timeout
        while flock(descriptor, LOCK_EX | LOCK_NB) != 0 {
            let code = errno
            if code == EINTR { continue }
            if code == EWOULDBLOCK, ContinuousClock.now < deadline {
                usleep(10_000)
                continue
            }
            close(descriptor)
            guard code == EWOULDBLOCK else { throw StoreError(system: code, attempted: attempted) }
            let message = "another process has held it for \(timeout)"
            let remedy = "see with fuser which process it is, and try again"
            throw StoreError(.busy, attempted: attempted, message: message, remedy: remedy)
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
        guard descriptor >= 0 else { throw StoreError(system: errno, attempted: attempted) }
        var lock = Self.wholeFile
        guard fcntl(descriptor, Self.take, &lock) == 0 else {
            let code = errno
            close(descriptor)
            guard code == EAGAIN || code == EACCES else {
                throw StoreError(system: code, attempted: attempted)
            }
            let remedy = "end the other broker, or give this broker another state directory"
            throw StoreError(.busy, attempted: attempted, message: "another broker uses it", remedy: remedy)
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

    /// F_OFD_SETLK and F_OFD_GETLK (fcntl(2)), which Swift's Glibc lacks. flock(2) cannot query a lock.
    private static let (take, ask): (CInt, CInt) = (37, 36)

    private static var wholeFile: flock {
        flock(l_type: Int16(F_WRLCK), l_whence: Int16(SEEK_SET), l_start: 0, l_len: 0, l_pid: 0)
    }

    private static func path(in directory: String) -> String { "\(directory)/shared-device-broker.lock" }
}
