import Dispatch
import FoundationEssentials
import Glibc

/// A directory with one subdirectory for each user, which disappears at once and completely.
///
/// ```swift
/// let data = try UserDataDirectory("org.example.notes")
/// try cleanup.register("notes") { try await data.remove($0.accounts) }
/// let path = try data.open(for: account)
/// ```
///
/// A user's directory is `users/<name>`, for this user of the system only. To remove it, it is moved to `tombstones`, in one step: whoever
/// looks for a file by its path finds all of them before and none after. Then everything is deleted, and both directories are
/// forced to the disk. A crash in between leaves a tombstone, which the next start or the next removal deletes.
///
/// Symbolic links are removed and never followed, and nothing on another file system is touched. Directories that the app made
/// read-only are removed like the others. Files are cut to no length when they have lost their name: so their bytes go also where a
/// process still has them open, and where they have a second name elsewhere. A file that is shared between users belongs outside;
/// and a process that still has one mapped into memory ends when it touches it (`SIGBUS`), so close databases before. Nothing
/// is overwritten first: today's file systems and flash disks write elsewhere than where the old bytes are; encrypt the disk.
///
/// Several processes and tasks may use one directory at once. A reader that has opened the user's directory before the
/// removal sees the files go one by one; by path, none. A writer that is late fails, because the path is gone; only
/// ``open(for:in:)`` makes it anew, and with a ``Generation`` it does not either.
public struct UserDataDirectory: Sendable {
    /// How much was removed.
    public struct Removed: Sendable, Hashable, CustomStringConvertible {
        /// Files of all kinds, symbolic links included; not directories.
        public internal(set) var files = 0
        /// The sum of the regular files' lengths.
        public internal(set) var bytes = 0

        init() {}

        mutating func add(bytes: Int) {
            files += 1
            self.bytes += bytes
        }

        /// For instance “3 files, 1024 bytes”.
        public var description: String { "\(files) \(files == 1 ? "file" : "files"), \(bytes) bytes" }
    }

    /// The time between two removals. What was opened in one generation cannot be opened in the next.
    public struct Generation: Sendable, Hashable {
        fileprivate let text: String
    }

    /// A place in an opening or a removal, for tests that have something happen there.
    package enum Checkpoint: Sendable {
        /// The generation of the opening is not over yet.
        case checked
        /// The users' directories are tombstones.
        case buried
        /// A file is gone.
        case unlinked
        /// A subdirectory is a tombstone of its own.
        case moved
        /// All is gone.
        case swept
    }

    /// The absolute path of the directory that holds `users` and `tombstones`.
    public let path: String
    /// Whether files are cut to no length when they are deleted.
    public let truncates: Bool
    private let checkpoint: @Sendable (Checkpoint) -> Void

    private static let users = DirectoryHandle.name("users")
    private static let tombstones = DirectoryHandle.name("tombstones")

    /// The directory of this name in `$XDG_DATA_HOME` (`~/.local/share`); the app's identifier is a good name.
    ///
    /// - Throws: ``UserDataError`` where the name is not a single path component, and as ``init(path:truncates:)``.
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
        let environment = ProcessInfo.processInfo.environment
        let base = environment["XDG_DATA_HOME"].flatMap { $0.hasPrefix("/") ? $0 : nil }
        try self.init(path: (base ?? "\(environment["HOME"] ?? ".")/.local/share") + "/" + name)
    }

    /// The directory at this path; it is made where there is none. What a crash left half removed is deleted; where that fails, the
    /// next ``remove(_:)``, which the unfinished cleanup asks for, says so.
    ///
    /// - Parameters:
    ///   - path: a directory for nothing else, on a file system of Linux.
    ///   - truncates: whether files are cut to no length when they are deleted; `false` keeps what has a second name
    ///     elsewhere, and leaves the bytes to processes that have them open.
    /// - Throws: ``UserDataError`` where the directory cannot be made or is not this user's.
    public init(path: String, truncates: Bool = true) throws(UserDataError) {
        try self.init(path: path, truncates: truncates) { _ in }
    }

    package init(
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

    // MARK: One user's directory

    /// The path of the account's directory, which is there on return, and only for this user of the system.
    ///
    /// - Parameters:
    ///   - account: whose.
    ///   - generation: what ``generation()`` said when the app was told that this account is signed in. A task that is late then
    ///     cannot make the directory again after its removal. `nil` does not look.
    /// - Throws: ``UserDataError`` where it cannot be made, is not this user's, where the account's identifier is too long for a file name
    ///   (255 bytes, where other bytes than lower-case letters, digits, `-` and `.` count three times), or where the
    ///   generation is over.
    public func open(for account: Account, in generation: Generation? = nil) throws(UserDataError) -> String {
        guard let name = AccountDirectoryName.name(for: account.identifier) else {
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
            // A removal ends the generation before it takes what is there: so either it has taken this one, or it is seen here.
            try check(generation, directory.path)
        } catch {
            if isNew { _ = unlinkat(users.descriptor, DirectoryHandle.name(name), AT_REMOVEDIR) }
            throw error
        }
        return directory.path
    }

    /// Whether there is a directory of the account.
    ///
    /// - Throws: ``UserDataError`` where that cannot be seen.
    public func contains(_ account: Account) throws(UserDataError) -> Bool {
        guard let name = AccountDirectoryName.name(for: account.identifier) else { return false }
        return try directory(Self.users).status(of: DirectoryHandle.name(name)) != nil
    }

    /// The generation of these moments: it is over with the next ``remove(_:)`` of any process.
    ///
    /// - Throws: ``UserDataError`` where it cannot be read.
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

    /// Removes the directories of these accounts, and what earlier removals have left. On return nothing of it is on the disk; where
    /// there is nothing, that is a success. Readers by path find nothing from the beginning on, also where it throws later.
    ///
    /// It runs on a queue of the system's and is not cancelled with its task.
    ///
    /// - Returns: how much was deleted here; what another process deletes at the same time is counted there.
    /// - Throws: ``UserDataError``, the first, where something cannot be removed. All else is removed then, and the next call tries
    ///   again.
    @discardableResult
    public func remove(_ accounts: [Account]) async throws(UserDataError) -> Removed {
        let result = await withCheckedContinuation { continuation in
            DispatchQueue.global().async {
                let result: Result<Removed, UserDataError>
                do throws(UserDataError) {
                    result = .success(try removeHere(accounts))
                } catch {
                    result = .failure(error)
                }
                continuation.resume(returning: result)
            }
        }
        return try result.get()
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
        attempt { () throws(UserDataError) in try endGeneration() }
        for account in accounts {
            // A name that is too long was never made.
            guard let name = AccountDirectoryName.name(for: account.identifier) else { continue }
            attempt { () throws(UserDataError) in
                let tombstone = DirectoryHandle.name(UUID().uuidString)
                try TombstoneSweep.move(DirectoryHandle.name(name), in: users, to: tombstone, in: tombstones)
            }
        }
        attempt { () throws(UserDataError) in try tombstones.sync() }
        attempt { () throws(UserDataError) in try users.sync() }
        checkpoint(.buried)
        var sweep = TombstoneSweep(truncates: truncates, checkpoint: checkpoint)
        sweep.run(in: tombstones)
        checkpoint(.swept)
        if let problem = problem ?? sweep.problem { throw problem }
        return sweep.removed
    }

    private var generationFile: String { "\(path)/generation" }

    /// In place and not replaced: whatever two writers at once leave there, it is another generation.
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
            reason: "users' data was removed since this generation was asked for",
            remedy:
                "Stop the work that is for an earlier session, and ask for the generation when the account is opened"
        )
    }

    // MARK: The places

    /// `users` or `tombstones`, made where it is missing.
    private func directory(_ name: DirectoryHandle.Name) throws(UserDataError) -> DirectoryHandle {
        try Self.makeDirectory(path)
        let base = Glibc.open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard base >= 0 else { throw UserDataError("open", path) }
        let directory = DirectoryHandle(taking: base, path: path)
        _ = try directory.makeDirectory(name)
        return try directory.privateDirectory(name)
    }

    /// Makes a directory for this user only, and those above it.
    private static func makeDirectory(_ path: String) throws(UserDataError) {
        guard mkdir(path, 0o700) != 0, errno != EEXIST else { return }
        guard errno == ENOENT, let slash = path.lastIndex(of: "/"), slash > path.startIndex else {
            throw UserDataError("make the directory", path)
        }
        try makeDirectory(String(path[..<slash]))
        guard mkdir(path, 0o700) == 0 || errno == EEXIST else { throw UserDataError("make the directory", path) }
    }
}

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
