import Basics
import DBus
import FoundationEssentials
import Glibc

/// A directory with one subdirectory for each account, whose removal is atomic for readers and complete.
///
/// ```swift
/// let data = try UserDataDirectory("org.example.notes")
/// try cleanup.register("notes") { try await data.remove($0.accounts) }
/// let path = try data.open(for: account)
/// ```
///
/// An account's directory is `users/<name>`; only this system user has access to it. A removal moves it to `tombstones`
/// with one rename: readers by path find all files before and none after. Then the removal deletes everything, and
/// syncs both directories to disk. After a crash, the next start or the next removal deletes the remaining tombstones.
///
/// Symbolic links are removed and never followed, and nothing on another file system is touched. Directories that the
/// app made read-only are removed, too.
///
/// Files are truncated after they are unlinked, so that their bytes are freed even if a process has them open or they
/// have another hard link. So keep files that accounts share outside, and close databases before the removal: a process
/// that accesses a truncated file in mapped memory is killed (`SIGBUS`). The bytes are not overwritten, because current
/// file systems and flash disks would write to a different place: encrypt the disk.
///
/// Several processes and tasks may use one directory at once. A reader that opened the account's directory before the
/// removal sees the files disappear one by one. A late writer fails, because the path is gone. Only ``open(for:in:)``
/// creates it again, and fails with a ``Generation`` that has ended.
public struct UserDataDirectory: Sendable {
    /// The amount of removed data.
    public struct Removed: Sendable, Hashable, CustomStringConvertible {
        /// Files of all kinds, symbolic links included; not directories.
        public package(set) var files = 0
        /// The sum of the regular files' lengths.
        public package(set) var bytes = 0

        @_spi(Extensions) public init() {}

        /// Adds one file.
        @_spi(Extensions) public mutating func add(bytes: Int) {
            var file = Removed()
            (file.files, file.bytes) = (1, bytes)
            add(file)
        }

        /// Saturates at the maximum, because the length of a sparse file can be arbitrary.
        @_spi(Extensions) public mutating func add(_ other: Removed) {
            files += other.files
            let (sum, isTooLarge) = bytes.addingReportingOverflow(other.bytes)
            bytes = isTooLarge ? .max : sum
        }

        /// For instance “3 files, 1024 bytes”.
        public var description: String { "\(files) \(files == 1 ? "file" : "files"), \(bytes) bytes" }
    }

    /// The time between two removals. With a generation that has ended, a directory cannot be opened.
    public struct Generation: Sendable, Hashable {
        fileprivate let text: String
    }

    /// A point in an opening or a removal at which tests can intervene.
    @_spi(Extensions) public enum Checkpoint: Sendable {
        /// The opening has found that its generation is current.
        case checked
        /// The accounts' directories are tombstones.
        case buried
        /// A file is deleted.
        case unlinked
        /// A subdirectory has become a separate tombstone.
        case moved
        /// Everything is deleted.
        case swept
    }

    /// The absolute path of the directory that holds `users` and `tombstones`.
    public let path: String
    /// Whether files are truncated when they are deleted.
    public let truncates: Bool
    private let checkpoint: @Sendable (Checkpoint) -> Void

    private static let users = DirectoryHandle.name("users")
    private static let tombstones = DirectoryHandle.name("tombstones")

    /// Creates the directory of this name in `$XDG_DATA_HOME` (`~/.local/share`). The app's identifier is a good name.
    ///
    /// - Throws: ``UserDataError`` if the name is not a single path component, and like ``init(path:truncates:)``.
    public init(_ name: String) throws(UserDataError) {
        guard !name.isEmpty, name != ".", name != "..", !name.contains("/"), !name.utf8.contains(0) else {
            throw UserDataError(
                "use the name",
                "“\(name)”",
                code: EINVAL,
                reason: "it is not the name of a directory",
                remedy: "Take the app's identifier, or give a path: UserDataDirectory(path:)"
            )
        }
        let base = SharedDeviceApplication.baseDirectory("XDG_DATA_HOME", ".local/share")
        try self.init(path: "\(base)/\(name)")
    }

    /// Creates the directory at this path if it is missing. Also deletes tombstones that a crash has left, on the
    /// calling thread; if that fails, the next ``remove(_:)`` reports it.
    ///
    /// - Parameters:
    ///   - path: a directory for this purpose only, on a Linux file system.
    ///   - truncates: whether to truncate files when deleting them. With `false`, the bytes stay for processes that
    ///     have the file open, and for other hard links.
    /// - Throws: ``UserDataError`` if the directory cannot be created or belongs to another user.
    public init(path: String, truncates: Bool = true) throws(UserDataError) {
        try self.init(path: path, truncates: truncates) { _ in }
    }

    @_spi(Extensions) public init(
        path: String,
        truncates: Bool = true,
        checkpoint: @escaping @Sendable (Checkpoint) -> Void
    ) throws(UserDataError) {
        self.path = path.hasPrefix("/") ? path : "\(FileManager.default.currentDirectoryPath)/\(path)"
        self.truncates = truncates
        self.checkpoint = checkpoint
        guard !path.isEmpty, !path.utf8.contains(0) else {
            throw UserDataError("use", "“\(path)”", code: EINVAL, reason: "it is no path", remedy: "Give a path")
        }
        _ = try directory(Self.users)
        var sweep = TombstoneSweep(truncates: truncates, checkpoint: checkpoint)
        sweep.run(in: try directory(Self.tombstones))
    }

    // MARK: One account's directory

    /// Creates the account's directory if it is missing, accessible only to this system user, and returns its path.
    ///
    /// - Parameters:
    ///   - account: The account that is signed in.
    ///   - generation: The result of ``generation()`` when the app was told that this account is signed in. With it, a
    ///     late task cannot create the directory again after its removal. `nil` means no check.
    /// - Throws: ``UserDataError`` if the directory cannot be created or belongs to another user, if the generation has
    ///   ended, or if the account's identifier is too long for a file name: 255 bytes, where bytes other than
    ///   lower-case letters, digits, `-` and `.` count three times.
    public func open(for account: Account, in generation: Generation? = nil) throws(UserDataError) -> String {
        guard let name = account.directoryName else {
            throw UserDataError(
                "make the directory of \(account.username) in",
                path,
                code: ENAMETOOLONG,
                reason: "the account's identifier is too long for a file name",
                remedy: "Use an identity provider whose identifiers are shorter"
            )
        }
        try check(generation, "\(path)/users/\(name)")
        checkpoint(.checked)
        let users = try directory(Self.users)
        let isNew = try users.makeDirectory(DirectoryHandle.name(name))
        let directory = try users.privateDirectory(DirectoryHandle.name(name))
        do throws(UserDataError) {
            // A removal ends the generation before it moves the directories: either this check fails, or the directory
            // was created before the move.
            try check(generation, directory.path)
        } catch {
            if isNew { _ = unlinkat(users.descriptor, DirectoryHandle.name(name), AT_REMOVEDIR) }
            throw error
        }
        return directory.path
    }

    /// Whether the account has a directory.
    ///
    /// - Throws: ``UserDataError`` if the system refuses to look.
    public func contains(_ account: Account) throws(UserDataError) -> Bool {
        guard let name = account.directoryName else { return false }
        return try directory(Self.users).status(of: DirectoryHandle.name(name)) != nil
    }

    /// Returns the current generation. It ends with the next ``remove(_:)`` of any process.
    ///
    /// - Throws: ``UserDataError`` if it cannot be read.
    public func generation() throws(UserDataError) -> Generation {
        let file = Glibc.open(generationFile, O_RDONLY | O_CLOEXEC)
        guard file >= 0 else {
            guard errno == ENOENT else { throw UserDataError("read", generationFile) }
            return Generation(text: "")
        }
        defer { close(file) }
        var bytes = [UInt8](repeating: 0, count: 64)
        let count = pread(file, &bytes, bytes.count, 0)
        guard count >= 0 else { throw UserDataError("read", generationFile) }
        return Generation(text: String(decoding: bytes[..<count], as: UTF8.self))
    }

    // MARK: Removing

    /// Removes the directories of these accounts, and the leftovers of earlier removals. On return they are no longer
    /// on disk. Succeeds if there is nothing to remove. It runs on a separate thread, and continues if its task is
    /// cancelled.
    ///
    /// Readers by path find nothing once the removal has begun, even if the function throws later. There is one
    /// exception: if the file system cannot move a directory (it is full, or is a layer of an overlay), readers see the
    /// files disappear one by one.
    ///
    /// - Returns: the amount that this call deleted, without concurrent deletions by other processes.
    /// - Throws: the first ``UserDataError`` if something cannot be removed. Everything else is removed even then, and
    ///   the next call tries again.
    @discardableResult
    public func remove(_ accounts: [Account]) async throws(UserDataError) -> Removed {
        try await onSystemThread { () throws(UserDataError) in try removeHere(accounts) }
    }

    private func removeHere(_ accounts: [Account]) throws(UserDataError) -> Removed {
        let users = try directory(Self.users)
        let tombstones = try directory(Self.tombstones)
        var problem: UserDataError?
        func attempt(_ body: () throws(UserDataError) -> Void) {
            do throws(UserDataError) {
                try body()
            } catch {
                if problem == nil { problem = error }
            }
        }
        var sweep = TombstoneSweep(truncates: truncates, checkpoint: checkpoint)
        attempt { () throws(UserDataError) in try endGeneration() }
        for account in accounts {
            // An account with a longer name has no directory.
            guard let name = account.directoryName else { continue }
            attempt { () throws(UserDataError) in
                let tombstone = DirectoryHandle.name(UUID().uuidString)
                try sweep.bury(DirectoryHandle.name(name), in: users, as: tombstone, in: tombstones)
            }
        }
        attempt { () throws(UserDataError) in try tombstones.sync() }
        attempt { () throws(UserDataError) in try users.sync() }
        checkpoint(.buried)
        sweep.run(in: tombstones)
        checkpoint(.swept)
        if let problem = problem ?? sweep.problem { throw problem }
        return sweep.removed
    }

    private var generationFile: String { "\(path)/generation" }

    /// Overwrites the generation in place. Even the interleaved bytes of two writers are a new generation.
    private func endGeneration() throws(UserDataError) {
        let file = Glibc.open(generationFile, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw UserDataError("write", generationFile) }
        defer { close(file) }
        let text = Array(UUID().uuidString.utf8)
        guard pwrite(file, text, text.count, 0) == text.count else { throw UserDataError("write", generationFile) }
    }

    private func check(_ generation: Generation?, _ path: String) throws(UserDataError) {
        guard let generation, try generation != self.generation() else { return }
        throw UserDataError(
            "make the directory",
            path,
            code: ESTALE,
            reason: "users' data was removed after this generation was read",
            remedy:
                "Stop the work for an earlier session, and read the generation when the account is opened"
        )
    }

    // MARK: The subdirectories

    /// Opens `users` or `tombstones`, and creates it if it is missing.
    private func directory(_ name: DirectoryHandle.Name) throws(UserDataError) -> DirectoryHandle {
        try Self.makeDirectory(path)
        let base = Glibc.open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard base >= 0 else { throw UserDataError("open", path) }
        let directory = DirectoryHandle(taking: base, path: path)
        _ = try directory.makeDirectory(name)
        return try directory.privateDirectory(name)
    }

    /// Creates a directory, and its missing parents, for this user only.
    private static func makeDirectory(_ path: String) throws(UserDataError) {
        guard mkdir(path, 0o700) != 0, errno != EEXIST else { return }
        guard errno == ENOENT, let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")), slash > path.startIndex else {
            throw UserDataError("make the directory", path)
        }
        try makeDirectory(String(path[..<slash]))
        guard mkdir(path, 0o700) == 0 || errno == EEXIST else { throw UserDataError("make the directory", path) }
    }
}

/// A failure of a ``UserDataDirectory``: the operation, its path, the cause and the remedy.
public struct UserDataError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The operation that failed, for instance “remove”.
    public let attempted: String
    /// The file or directory at which it failed.
    public let path: String
    /// The system's error number; 0 if the failure was not a system error.
    public let code: Int32
    /// The cause.
    public let reason: String
    /// The remedy.
    public let remedy: String

    /// One line, without terminal control characters.
    public var description: String { "could not \(attempted) \(path): \(reason). \(remedy)".printable }

    init(_ attempted: String, _ path: String) {
        let code = errno
        self.init(attempted, path, code: code, reason: String(cString: strerror(code)), remedy: Self.remedy(code))
    }

    init(_ attempted: String, _ path: String, code: Int32 = 0, reason: String, remedy: String) {
        (self.attempted, self.path, self.code) = (attempted, path, code)
        (self.reason, self.remedy) = (reason, remedy)
    }

    /// The error for an entry on another file system, whose files are left alone.
    static func mountPoint(_ path: String) -> UserDataError {
        UserDataError("remove", path, code: EBUSY, reason: "something is mounted there", remedy: remedy(EBUSY))
    }

    private static func remedy(_ code: Int32) -> String {
        switch code {
        case EACCES, EPERM:
            "Give it and its directory to the user that runs this app (chown), and make it changeable (lsattr, chattr -i -a)"
        case EROFS: "Make the file system writable"
        case EBUSY: "Unmount what is mounted there"
        case EXDEV: "Keep “users” and “tombstones” on one file system"
        case ENOSPC, EDQUOT: "Free some space on its file system"
        case ENOSYS: "Allow the system call openat2, which needs Linux 5.6; RestrictSUIDSGID= in a unit forbids it"
        case ENOTDIR, ELOOP: "Move the file or link away; a directory is needed there"
        case EMFILE, ENFILE: "Close files that are not needed, or raise the limit of open files"
        case EIO: "Check the disk"
        default: "Remove the cause, and try again"
        }
    }
}
