import CLinux
import Glibc

/// A file or a directory that somebody else has named, and that is deleted without following a link or crossing a mount: what an adapter deletes for
/// a program that keeps its data as it likes.
///
/// A directory is emptied and stays, with its owner: the program expects it, and its parent may be another user's. Everything in it is first moved
/// into a directory of tombstones inside it, in one step for each entry: whoever still writes by path fails from then on. Then the
/// ``TombstoneSweep`` deletes what was moved. A crash leaves tombstones, which the next removal deletes. What the system does not move, for instance
/// because the disk is full, is deleted where it is. No bytes are overwritten, and a file with a second name elsewhere keeps its bytes there.
///
/// The directory keeps the rights of its owner, and what its group and others may read. It loses what a person could leave in it for the next one:
/// access control lists, attributes (`user.*`), set-ID and sticky bits, and the rights of group and others to write. Rights that its owner, who is
/// this user, has taken from it or from the directories above do not keep it: they are given again.
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
    /// - Throws: ``UserDataError`` with the path of what cannot be deleted: it belongs to another user, it is a link or a link leads to it,
    ///   something is mounted there, or the system refuses. Everything else in it is deleted then.
    package func remove() throws(UserDataError) -> UserDataDirectory.Removed {
        do throws(UserDataError) {
            return try removeWithPresentRights()
        } catch {
            guard error.code == EACCES, OwnDirectories.regainRights(along: Self.split(path).parent) else { throw error }
            return try removeWithPresentRights()
        }
    }

    private func removeWithPresentRights() throws(UserDataError) -> UserDataDirectory.Removed {
        let entry = DirectoryHandle.name(Self.split(path).name)
        var removed = UserDataDirectory.Removed()
        for _ in 0..<Self.patience {
            guard let parent = try openParent(), let status = try parent.status(of: entry) else { return removed }
            try check(status, entry, parent)
            checkpoint(.opened)
            guard status.st_mode & S_IFMT == S_IFDIR else {
                try removeFile(entry, status, parent, &removed)
                continue
            }
            let directory = try parent.emptiable(entry, status)
            try checkOwner(try directory.status().st_uid)
            try empty(directory, &removed)
            // Somebody may have put another directory in its place, or in that of one above it.
            if let parent = try openParent(), try directory.isEntry(entry, of: parent) { return removed }
        }
        throw stillWritten
    }

    /// The directory that the path's last part is in; `nil` if there is none.
    private func openParent() throws(UserDataError) -> DirectoryHandle? {
        let parent = Self.split(path).parent
        let descriptor = CLinux_openDirectoryWithoutLinks(parent)
        if descriptor >= 0 { return DirectoryHandle(taking: descriptor, path: parent == "/" ? "" : parent) }
        if errno == ENOENT { return nil }
        guard errno == ELOOP || errno == ENOTDIR else { throw UserDataError("open", parent) }
        throw Self.link(parent, "a part of it is a symbolic link, or no directory")
    }

    private func check(
        _ status: stat,
        _ name: DirectoryHandle.Name,
        _ parent: borrowing DirectoryHandle
    ) throws(UserDataError) {
        guard status.st_mode & S_IFMT != S_IFLNK else {
            // To delete the link alone would be a receipt for what it leads to.
            throw Self.link(path, "it is a symbolic link, and what it leads to would stay")
        }
        try checkOwner(status.st_uid)
        guard CLinux_isMountPoint(parent.descriptor, name) == 0 else { throw .mountPoint(path) }
    }

    private func checkOwner(_ owner: uid_t) throws(UserDataError) {
        guard owner != geteuid() else { return }
        throw UserDataError(
            "remove",
            path,
            code: EPERM,
            reason: "it belongs to the user with the number \(owner), and not to \(geteuid())",
            remedy: "Give it to the user that the app's manifest names (chown), or correct the manifest"
        )
    }

    private func removeFile(
        _ name: DirectoryHandle.Name,
        _ status: stat,
        _ directory: borrowing DirectoryHandle,
        _ removed: inout UserDataDirectory.Removed
    ) throws(UserDataError) {
        guard unlinkat(directory.descriptor, name, 0) == 0 || errno == ENOENT else {
            throw UserDataError("remove", path)
        }
        checkpoint(.unlinked)
        try force(directory)
        removed.add(bytes: status.st_mode & S_IFMT == S_IFREG ? Int(status.st_size) : 0)
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
        _ removed: inout UserDataDirectory.Removed
    ) throws(UserDataError) {
        let name = DirectoryHandle.name(Self.tombstones)
        let checkpoint = checkpoint
        var sweep = TombstoneSweep(truncates: false) { if $0 == .unlinked { checkpoint(.unlinked) } }
        for _ in 0..<Self.patience {
            if try makePlace(name, directory) {
                let tombstones = try directory.privateDirectory(name)
                try tombstones.refuseMount()
                let problem = try bury(directory, name, tombstones, &sweep)
                checkpoint(.buried)
                sweep.run(in: tombstones)
                if let problem = sweep.problem ?? problem { throw problem }
                guard try directory.removeDirectory(name) else { continue }
            } else {
                try sweep.emptyInPlace(directory)
            }
            checkpoint(.swept)
            try directory.takeLeftovers()
            try directory.sync()
            guard try directory.names().isEmpty else { continue }
            removed.add(sweep.removed)
            return
        }
        throw stillWritten
    }

    private var stillWritten: UserDataError {
        UserDataError(
            "remove",
            path,
            code: ENOTEMPTY,
            reason: "somebody still writes into it, or puts it there again",
            remedy: "See who writes there (lsof +D), and have the manifest's cleanup stop that program"
        )
    }

    /// What has the place's name and is no directory goes. The program may have put it there.
    ///
    /// - Returns: false where the system makes no directory, for instance because the disk is full.
    private func makePlace(
        _ name: DirectoryHandle.Name,
        _ directory: borrowing DirectoryHandle
    ) throws(UserDataError) -> Bool {
        if let status = try directory.status(of: name), status.st_mode & S_IFMT != S_IFDIR {
            guard unlinkat(directory.descriptor, name, 0) == 0 || errno == ENOENT else {
                throw UserDataError("remove", directory.path(of: name))
            }
        }
        do throws(UserDataError) {
            _ = try directory.makeDirectory(name)
        } catch {
            guard TombstoneSweep.staysInPlace(error.code) else { throw error }
            return false
        }
        return true
    }

    /// Moves every entry beside the tombstones into them, under a new name; what cannot be moved is deleted where it is.
    ///
    /// - Returns: the first entry's failure.
    private func bury(
        _ directory: borrowing DirectoryHandle,
        _ place: DirectoryHandle.Name,
        _ tombstones: borrowing DirectoryHandle,
        _ sweep: inout TombstoneSweep
    ) throws(UserDataError) -> UserDataError? {
        var problem: UserDataError?
        var reader = try DirectoryReader(directory)
        while !sweep.hasGivenUp, case let names = try reader.next(atMost: 1024), !names.isEmpty {
            for name in names where name != place && !sweep.hasGivenUp {
                do throws(UserDataError) {
                    let tombstone = DirectoryHandle.name(Self.unique())
                    try sweep.bury(name, in: directory, as: tombstone, in: tombstones)
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

    /// By bytes: a mark that combines with the slash before it would make another character of both.
    private static func split(_ path: String) -> (parent: String, name: String) {
        let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) ?? path.startIndex
        let parent = String(decoding: path.utf8[..<slash], as: UTF8.self)
        return (parent.isEmpty ? "/" : parent, String(decoding: path.utf8[slash...].dropFirst(), as: UTF8.self))
    }

    private static func link(_ path: String, _ reason: String) -> UserDataError {
        UserDataError(
            "open",
            path,
            code: ELOOP,
            reason: reason,
            remedy:
                "Write the path in the manifest without links (realpath shows it), or mount what it leads to in its place"
        )
    }
}
