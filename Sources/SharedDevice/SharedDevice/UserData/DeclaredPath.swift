import CLinux
import FoundationEssentials
import Glibc

/// A file or a directory named by an app's manifest, which an adapter deletes for a program that manages its own data.
/// The deletion follows no symbolic link and crosses no mount.
///
/// A directory is emptied but stays, with its owner: the program expects it, and its parent may belong to another user.
/// First every entry is moved into a directory of tombstones inside it, each with one rename, so that later writes by
/// path fail. Then ``TombstoneSweep`` deletes the tombstones. After a crash, the next removal deletes the remaining
/// ones. Entries that cannot be moved, for instance because the disk is full, are deleted where they are. No bytes are
/// overwritten, and a file with another hard link keeps its bytes.
///
/// The directory keeps its owner's rights and the read rights of group and others. It loses access control lists,
/// extended attributes (`user.*`), set-ID and sticky bits, and the write rights of group and others. In these, one
/// person could leave data for the next. If its owner, which is this user, lacks rights to it or to the directories
/// above, they are restored first.
@_spi(Extensions) public struct DeclaredPath: Sendable {
    /// A point in the removal at which tests can intervene.
    @_spi(Extensions) public enum Checkpoint: String, Sendable {
        case opened
        case buried
        case unlinked
        /// Everything is deleted, but not yet guaranteed to be on disk.
        case swept
    }

    private typealias Name = DirectoryHandle.Name

    static let tombstones = ".shared-device-tombstones"
    /// The number of attempts to empty a directory in which another program creates entries.
    private static let patience = 10

    @_spi(Extensions) public let path: String
    private let checkpoint: @Sendable (Checkpoint) -> Void

    @_spi(Extensions) public init(_ path: String, checkpoint: @escaping @Sendable (Checkpoint) -> Void = { _ in }) {
        self.path = path
        self.checkpoint = checkpoint
    }

    /// Deletes the path, and checks that nothing is left. Succeeds if there is nothing. Blocks this thread on the file
    /// system.
    ///
    /// - Throws: ``UserDataError`` with the path that cannot be deleted. It belongs to another user, is a symbolic link
    ///   or is reached through one, is a mount point, or the system refuses. Everything else in the directory is
    ///   deleted even then.
    @_spi(Extensions) public func remove() throws(UserDataError) -> UserDataDirectory.Removed {
        do throws(UserDataError) {
            return try removeWithPresentRights()
        } catch {
            guard error.code == EACCES, Self.regainRights(along: Self.split(path).parent) else { throw error }
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
            // Another program may have replaced the directory, or a directory above it.
            if let parent = try openParent(), try directory.isEntry(entry, of: parent) { return removed }
        }
        throw stillWritten
    }

    private func openParent() throws(UserDataError) -> DirectoryHandle? {
        let parent = Self.split(path).parent
        let descriptor = CLinux_openDirectoryWithoutLinks(parent)
        if descriptor >= 0 { return DirectoryHandle(taking: descriptor, path: parent == "/" ? "" : parent) }
        if errno == ENOENT { return nil }
        guard errno == ELOOP || errno == ENOTDIR else { throw UserDataError("open", parent) }
        throw Self.link(parent, "a part of it is a symbolic link, or not a directory")
    }

    private func check(_ status: stat, _ name: Name, _ parent: borrowing DirectoryHandle) throws(UserDataError) {
        guard status.st_mode & S_IFMT != S_IFLNK else {
            // Deleting only the link would produce a receipt although the data stays.
            throw Self.link(path, "it is a symbolic link, and its target would stay")
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
            reason: "it belongs to user \(owner), not to user \(geteuid())",
            remedy: "Give it to the user that the app's manifest names (chown), or correct the manifest"
        )
    }

    private func removeFile(
        _ name: Name,
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

    /// Syncs the removal to disk. This user may lack the right to read the directory.
    private func force(_ directory: borrowing DirectoryHandle) throws(UserDataError) {
        let descriptor = openat(directory.descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        if descriptor >= 0 { return try DirectoryHandle(taking: descriptor, path: directory.path).sync() }
        guard errno == EACCES else { throw UserDataError("open", directory.path) }
        // `fsync` needs an open directory, so sync everything.
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
            reason: "a program still writes into it, or creates it again",
            remedy: "See who writes there (lsof +D), and have the manifest's cleanup stop that program"
        )
    }

    /// Creates the directory of tombstones. A file of that name is deleted first; the program may have created it.
    /// Returns false if the system cannot create a directory, for instance because the disk is full.
    private func makePlace(_ name: Name, _ directory: borrowing DirectoryHandle) throws(UserDataError) -> Bool {
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

    /// Moves every entry except the tombstones into them, under a new name. Entries that cannot be moved are deleted
    /// where they are. Returns the first failure.
    private func bury(
        _ directory: borrowing DirectoryHandle,
        _ place: Name,
        _ tombstones: borrowing DirectoryHandle,
        _ sweep: inout TombstoneSweep
    ) throws(UserDataError) -> UserDataError? {
        var problem: UserDataError?
        var reader = try DirectoryReader(directory)
        while !sweep.hasGivenUp, case let names = try reader.next(atMost: 1024), !names.isEmpty {
            for name in names where name != place && !sweep.hasGivenUp {
                do throws(UserDataError) {
                    let tombstone = DirectoryHandle.name(UUID().uuidString)
                    try sweep.bury(name, in: directory, as: tombstone, in: tombstones)
                } catch {
                    if problem == nil { problem = error }
                }
            }
        }
        return problem
    }

    /// Splits bytes, not characters: a combining mark after the slash would merge with it into one character.
    @_spi(Extensions) public static func split(_ path: String) -> (parent: String, name: String) {
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
                "Write the path in the manifest without links (realpath shows it), or mount the link's target at this path"
        )
    }

    /// Restores the owner's rights to each directory of the path that belongs to this user and lacks them, without
    /// which a person could keep their data for ever. Follows no link. Returns whether a directory has regained rights.
    private static func regainRights(along path: String) -> Bool {
        var changed = false
        var place = ""
        var current = CLinux_openDirectoryWithoutLinks("/")
        defer { if current >= 0 { close(current) } }
        for component in path.utf8.split(separator: UInt8(ascii: "/")) where current >= 0 {
            let name = String(decoding: component, as: UTF8.self)
            place += "/\(name)"
            let next = CLinux_openDirectoryWithoutLinks(place)
            var status = stat()
            if next >= 0, fstat(next, &status) == 0, status.st_uid == geteuid(), status.st_mode & 0o700 != 0o700 {
                let mode = status.st_mode & 0o7777 | 0o700
                if fchmodat(current, name, mode, AT_SYMLINK_NOFOLLOW) == 0 { changed = true }
            }
            close(current)
            current = next
        }
        return changed
    }
}
