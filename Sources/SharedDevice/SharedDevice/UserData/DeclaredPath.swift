import CLinux
import Glibc

/// A file or a directory that somebody else has named, and that is deleted without following a link or crossing a mount: what an adapter deletes for
/// a program that keeps its data as it likes.
///
/// A directory is emptied and stays, with its owner and its rights: the program expects it, and its parent may be another user's. Everything in it
/// is first moved into a directory of tombstones inside it, in one step for each entry: whoever still writes by path fails from then on. Then the
/// ``TombstoneSweep`` deletes what was moved. A crash leaves tombstones, which the next removal deletes. No bytes are overwritten, and a file with
/// a second name elsewhere keeps its bytes there.
package struct DeclaredPath: Sendable {
    /// A place at which tests act.
    package enum Checkpoint: String, Sendable {
        /// The path is open, and nothing has changed.
        case opened
        /// The entries are tombstones.
        case buried
        /// A file is gone.
        case unlinked
        /// All is gone, and not yet on the disk for certain.
        case swept
    }

    /// The name of the directory of tombstones.
    static let tombstones = ".shared-device-tombstones"
    /// How often a directory is emptied that somebody fills meanwhile.
    private static let patience = 10

    /// An absolute path.
    package let path: String
    private let checkpoint: @Sendable (Checkpoint) -> Void

    package init(_ path: String, checkpoint: @escaping @Sendable (Checkpoint) -> Void = { _ in }) {
        self.path = path
        self.checkpoint = checkpoint
    }

    /// Deletes it, and looks that nothing is left. Where there is nothing, it succeeds. Blocks this thread on the file system.
    ///
    /// - Throws: ``UserDataError`` with the path of what cannot be deleted: it belongs to another user, a link leads to it, something is mounted
    ///   there, or the system refuses. Everything else in it is deleted then.
    package func remove() throws(UserDataError) -> UserDataDirectory.Removed {
        let (parent, name) = Self.split(path)
        let parentDescriptor = CLinux_openDirectoryWithoutLinks(parent)
        guard parentDescriptor >= 0 else {
            if errno == ENOENT { return UserDataDirectory.Removed() }
            throw Self.unopened(parent)
        }
        let directory = DirectoryHandle(taking: parentDescriptor, path: parent == "/" ? "" : parent)
        let entry = DirectoryHandle.name(name)
        guard let status = try directory.status(of: entry) else { return UserDataDirectory.Removed() }
        guard status.st_uid == geteuid() else {
            throw UserDataError(
                "remove",
                path,
                code: EPERM,
                reason: "it belongs to the user with the number \(status.st_uid), and not to \(geteuid())",
                remedy: "Give it to the user that the app's manifest names (chown), or correct the manifest"
            )
        }
        guard CLinux_isMountPoint(directory.descriptor, name) == 0 else { throw .mountPoint(path) }
        checkpoint(.opened)
        guard status.st_mode & S_IFMT == S_IFDIR else { return try removeFile(entry, status, directory) }
        return try empty(try DirectoryHandle(at: directory.descriptor, entry, path: path), status)
    }

    private func removeFile(
        _ name: DirectoryHandle.Name,
        _ status: stat,
        _ directory: borrowing DirectoryHandle
    ) throws(UserDataError) -> UserDataDirectory.Removed {
        guard unlinkat(directory.descriptor, name, 0) == 0 || errno == ENOENT else {
            throw UserDataError("remove", path)
        }
        checkpoint(.unlinked)
        try force(directory)
        var removed = UserDataDirectory.Removed()
        removed.add(bytes: status.st_mode & S_IFMT == S_IFREG ? Int(status.st_size) : 0)
        return removed
    }

    /// Has the disk know what is gone from the directory, which this user perhaps may pass and write, and not read.
    private func force(_ directory: borrowing DirectoryHandle) throws(UserDataError) {
        let descriptor = openat(directory.descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        if descriptor >= 0 { return try DirectoryHandle(taking: descriptor, path: directory.path).sync() }
        guard errno == EACCES else { throw UserDataError("open", directory.path) }
        // A directory that is not open cannot be forced alone.
        Glibc.sync()
    }

    private func empty(
        _ directory: borrowing DirectoryHandle,
        _ status: stat
    ) throws(UserDataError) -> UserDataDirectory.Removed {
        // The program may have made it read-only. If this fails, the steps below report it.
        if status.st_mode & 0o700 != 0o700 { _ = fchmod(directory.descriptor, status.st_mode & 0o7777 | 0o700) }
        let name = DirectoryHandle.name(Self.tombstones)
        let checkpoint = checkpoint
        var sweep = TombstoneSweep(truncates: false) { if $0 == .unlinked { checkpoint(.unlinked) } }
        var problem: UserDataError?
        for _ in 0..<Self.patience {
            try makePlace(name, directory)
            let tombstones = try directory.privateDirectory(name)
            problem = try bury(directory, name, tombstones)
            checkpoint(.buried)
            sweep.run(in: tombstones)
            if let problem = sweep.problem ?? problem { throw problem }
            guard unlinkat(directory.descriptor, name, AT_REMOVEDIR) == 0 || errno == ENOENT else {
                if errno == ENOTEMPTY || errno == EEXIST { continue }
                throw UserDataError("remove", directory.path(of: name))
            }
            checkpoint(.swept)
            try directory.sync()
            if try directory.names().isEmpty { return sweep.removed }
        }
        throw UserDataError(
            "remove",
            path,
            code: ENOTEMPTY,
            reason: "somebody still writes into it",
            remedy: "See who writes there (lsof +D), and have the manifest's cleanup stop that program"
        )
    }

    /// What has the place's name and is no directory goes. The program may have put it there.
    private func makePlace(
        _ name: DirectoryHandle.Name,
        _ directory: borrowing DirectoryHandle
    ) throws(UserDataError) {
        if let status = try directory.status(of: name), status.st_mode & S_IFMT != S_IFDIR {
            guard unlinkat(directory.descriptor, name, 0) == 0 || errno == ENOENT else {
                throw UserDataError("remove", directory.path(of: name))
            }
        }
        _ = try directory.makeDirectory(name)
    }

    /// Moves every entry beside the tombstones into them, under a new name.
    ///
    /// - Returns: the first entry's failure.
    private func bury(
        _ directory: borrowing DirectoryHandle,
        _ place: DirectoryHandle.Name,
        _ tombstones: borrowing DirectoryHandle
    ) throws(UserDataError) -> UserDataError? {
        var problem: UserDataError?
        var reader = try DirectoryReader(directory)
        while case let names = try reader.next(atMost: 1024), !names.isEmpty {
            for name in names where name != place {
                do throws(UserDataError) {
                    let tombstone = DirectoryHandle.name(Self.unique())
                    try TombstoneSweep.move(name, in: directory, to: tombstone, in: tombstones)
                } catch {
                    if problem == nil { problem = error }
                }
            }
        }
        return problem
    }

    private static func unique() -> String {
        var generator = SystemRandomNumberGenerator()
        return String(generator.next(), radix: 36) + String(generator.next(), radix: 36)
    }

    private static func split(_ path: String) -> (parent: String, name: String) {
        let slash = path.lastIndex(of: "/") ?? path.startIndex
        let parent = path[..<slash]
        return (parent.isEmpty ? "/" : String(parent), String(path[slash...].dropFirst()))
    }

    private static func unopened(_ path: String) -> UserDataError {
        guard errno == ELOOP || errno == ENOTDIR else { return UserDataError("open", path) }
        return UserDataError(
            "open",
            path,
            code: errno,
            reason: "a part of it is a symbolic link, or no directory",
            remedy: "Write the path in the manifest without links (realpath shows it), or mount what it leads to in its place"
        )
    }
}
