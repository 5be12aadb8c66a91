import CLinux
import FoundationEssentials
import Glibc

/// Empties the directory of tombstones, whose contents are pending deletion.
///
/// It works without recursion: a subdirectory is moved up next to its tombstone, and deleted in a later iteration. A
/// tree of any depth therefore needs only two descriptors, and a crash at any point leaves only tombstones. Several
/// sweeps may run at once: each tolerates entries that another has deleted, and deletes entries that another has moved
/// up, until the directory is empty.
struct TombstoneSweep {
    typealias Name = DirectoryHandle.Name

    /// The number of attempts to empty a directory in which another program creates entries.
    static let patience = 10
    static let part = 1024
    /// The maximum number of deleted entries that were created after the sweep began. Above it the sweep gives up,
    /// because another program may create entries endlessly. On a file system without creation times there is no limit.
    static let mostYoung = 10_000

    private let truncates: Bool
    private let checkpoint: @Sendable (UserDataDirectory.Checkpoint) -> Void
    private(set) var removed = UserDataDirectory.Removed()
    private(set) var problem: UserDataError?
    private let prefix = UUID().uuidString
    private var moved = 0
    private let begunAt: timespec
    private var young = 0
    /// The number of moved entries that existed before the sweep. A move to another layer of an overlay gives them a
    /// new creation time.
    private var movedOld = 0
    private var emptied: [Name: Int] = [:]

    init(truncates: Bool, checkpoint: @escaping @Sendable (UserDataDirectory.Checkpoint) -> Void) {
        self.truncates = truncates
        self.checkpoint = checkpoint
        var now = timespec()
        // The clock of the file systems' creation times.
        clock_gettime(CLOCK_REALTIME_COARSE, &now)
        begunAt = now
    }

    /// Removes as much as possible. ``problem`` is the first failure.
    mutating func run(in tombstones: borrowing DirectoryHandle) {
        var stuck: Set<Name> = []
        do throws(UserDataError) {
            var isEmpty = false
            while !isEmpty, !hasGivenUp {
                isEmpty = true
                var reader = try DirectoryReader(tombstones)
                while !hasGivenUp, case let names = try reader.next(atMost: Self.part), !names.isEmpty {
                    for name in names where !hasGivenUp && !stuck.contains(name) {
                        isEmpty = false
                        do throws(UserDataError) {
                            try remove(name, from: tombstones)
                        } catch {
                            problem = problem ?? error
                            stuck.insert(name)
                        }
                    }
                }
            }
            try tombstones.sync()
        } catch {
            problem = problem ?? error
        }
    }

    /// Removes the tombstone. A directory with new entries stays for a later iteration.
    private mutating func remove(_ name: Name, from tombstones: borrowing DirectoryHandle) throws(UserDataError) {
        guard let status = try admit(name, in: tombstones) else { return }
        guard status.st_mode & S_IFMT == S_IFDIR else {
            return try unlink(name, status, in: tombstones)
        }
        try empty(name, status, in: tombstones)
        if try tombstones.removeDirectory(name) { return }
        emptied[name, default: 0] += 1
        guard emptied[name, default: 0] < Self.patience else {
            throw Self.refilled(tombstones.path(of: name))
        }
    }

    /// Whether another program creates entries faster than they are deleted.
    var hasGivenUp: Bool { young > Self.mostYoung + movedOld }

    private func isYoung(_ name: Name, in directory: borrowing DirectoryHandle) -> Bool {
        CLinux_isBornAfter(directory.descriptor, name, begunAt) == 1
    }

    /// Returns the status of an entry to delete, or `nil` if it is gone. Throws if too many entries were created since
    /// the sweep began.
    mutating func admit(_ name: Name, in directory: borrowing DirectoryHandle) throws(UserDataError) -> stat? {
        guard let status = try directory.status(of: name) else { return nil }
        if isYoung(name, in: directory) { young += 1 }
        guard !hasGivenUp else { throw Self.refilled(directory.path) }
        return status
    }

    static func refilled(_ path: String) -> UserDataError {
        UserDataError(
            "remove",
            path,
            code: ENOTEMPTY,
            reason: "a program still writes into it",
            remedy: "Have the app stop its work before it removes the data (lsof +D shows who writes)"
        )
    }

    /// Empties a tombstone that is a directory. Tries every entry, and throws the first failure.
    private mutating func empty(
        _ name: Name,
        _ status: stat,
        in tombstones: borrowing DirectoryHandle
    ) throws(UserDataError) {
        let descriptor: DirectoryHandle
        do throws(UserDataError) {
            descriptor = try tombstones.emptiable(name, status)
        } catch {
            if error.code == ENOENT { return }
            throw error
        }
        var failure: UserDataError?
        var reader = try DirectoryReader(descriptor)
        while !hasGivenUp, case let names = try reader.next(atMost: Self.part), !names.isEmpty {
            for entry in names where !hasGivenUp {
                do throws(UserDataError) {
                    guard let found = try admit(entry, in: descriptor) else { continue }
                    if found.st_mode & S_IFMT != S_IFDIR {
                        try unlink(entry, found, in: descriptor)
                    } else {
                        moved += 1
                        let tombstone = DirectoryHandle.name("\(prefix).\(moved)")
                        try bury(entry, in: descriptor, as: tombstone, in: tombstones)
                        checkpoint(.moved)
                    }
                } catch {
                    if failure == nil { failure = error }
                }
            }
        }
        if let failure { throw failure }
    }

    mutating func unlink(_ name: Name, _ status: stat, in directory: borrowing DirectoryHandle) throws(UserDataError) {
        let isFile = status.st_mode & S_IFMT == S_IFREG
        let file = isFile && truncates && status.st_size > 0 ? open(name, status, in: directory) : -1
        defer { if file >= 0 { close(file) } }
        guard unlinkat(directory.descriptor, name, 0) == 0 else {
            if errno == ENOENT { return }
            throw UserDataError("remove", directory.path(of: name))
        }
        // Truncates the file for processes that have it open. Only after it is unlinked: a file that cannot be removed,
        // for instance because it is a mount point, must not be changed.
        if file >= 0 { _ = ftruncate(file, 0) }
        removed.add(bytes: isFile ? Int(status.st_size) : 0)
        checkpoint(.unlinked)
    }

    /// Opens the file for its truncation; -1 if the system refuses, for instance for a running program. The file is
    /// then only unlinked.
    private func open(_ name: Name, _ status: stat, in directory: borrowing DirectoryHandle) -> CInt {
        if status.st_mode & 0o200 == 0 { _ = fchmodat(directory.descriptor, name, 0o600, AT_SYMLINK_NOFOLLOW) }
        return openat(directory.descriptor, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
    }

    /// Moves an entry into the tombstones with one rename. An entry that cannot be moved is deleted where it is.
    mutating func bury(
        _ name: Name,
        in directory: borrowing DirectoryHandle,
        as other: Name,
        in tombstones: borrowing DirectoryHandle
    ) throws(UserDataError) {
        if isYoung(name, in: directory) { young += 1 } else { movedOld += 1 }
        guard !hasGivenUp else { throw Self.refilled(directory.path) }
        func rename() -> Bool { renameat(directory.descriptor, name, tombstones.descriptor, other) == 0 }
        if rename() || errno == ENOENT { return }
        if errno == EACCES || errno == EPERM {
            // Moving a directory changes its “..” entry, which requires write permission.
            if fchmodat(directory.descriptor, name, 0o700, AT_SYMLINK_NOFOLLOW) == 0, rename() { return }
        }
        let error = UserDataError("remove", directory.path(of: name))
        guard Self.staysInPlace(error.code) else { throw error }
        try removeInPlace(name, in: directory)
    }
}

/// Deletes entries where they are, because the system cannot move them: on a full disk, in the lower layer of an
/// overlay, in a btrfs subvolume, or encrypted without their key.
/// At most two directories are open at a time, whatever the depth of the tree. The sweep goes back up by `..`, and
/// checks that this is the directory from which it descended: another program may have moved a directory.
extension TombstoneSweep {
    private struct Level {
        let name: Name
        let device: dev_t
        let inode: ino_t
        var pending: [Name] = []
        var stuck: Set<Name> = []

        init(_ name: Name, _ status: stat) {
            (self.name, device, inode) = (name, status.st_dev, status.st_ino)
        }
    }

    /// The maximum number of pending directory names in memory, not counting the directories on the current path.
    private static let memory = 65536
    /// The maximum number of names in an error's path below the emptied directory.
    private static let shownDepth = 100

    /// Whether an entry can be deleted in place although renaming it, or creating a directory for it, failed with this
    /// code.
    static func staysInPlace(_ code: Int32) -> Bool {
        // EXDEV also occurs if a directory belongs to a different project quota, which its owner may choose. EROFS also
        // occurs for a btrfs subvolume that its owner has made read-only; it can be made writable only when it is open.
        [EXDEV, ENOKEY, ENOSPC, EDQUOT, EMLINK, EROFS].contains(code)
    }

    /// Deletes an entry with its contents. Tries everything, and throws the first failure.
    mutating func removeInPlace(_ name: Name, in directory: borrowing DirectoryHandle) throws(UserDataError) {
        guard let status = try admit(name, in: directory) else { return }
        guard status.st_mode & S_IFMT == S_IFDIR else { return try unlink(name, status, in: directory) }
        if try directory.removeDirectory(name) { return }
        try emptyInPlace(try directory.emptiable(name, status))
        guard try directory.removeDirectory(name) else { throw Self.refilled(directory.path(of: name)) }
    }

    /// Deletes the contents of the directory. Tries everything, and throws the first failure.
    mutating func emptyInPlace(_ root: borrowing DirectoryHandle) throws(UserDataError) {
        var levels = [Level([], try root.status())]
        var current = try DirectoryHandle(at: root.descriptor, DirectoryHandle.name("."), path: root.path)
        var failure: UserDataError?
        var kept = 0
        var refills = 0
        while !hasGivenUp, let last = levels.indices.last {
            if levels[last].pending.isEmpty {
                let count = max(1, min(Self.part, Self.memory - kept))
                levels[last].pending = clear(current, atMost: count, stuck: &levels[last].stuck, failure: &failure)
                kept += levels[last].pending.count
            }
            guard let name = levels[last].pending.popLast() else {
                // The directory is empty, or its remaining entries cannot be deleted.
                let done = levels.removeLast()
                guard let above = levels.indices.last else { break }
                current = try Self.up(from: current, to: levels[above], path: Self.path(root.path, levels))
                do throws(UserDataError) {
                    if try current.removeDirectory(done.name) { continue }
                    if done.stuck.isEmpty, refills < Self.patience {
                        refills += 1
                        continue
                    }
                    throw Self.refilled(current.path(of: done.name))
                } catch {
                    // The failure to delete an entry in it is already recorded.
                    if failure == nil { failure = error }
                    levels[above].stuck.insert(done.name)
                }
                continue
            }
            kept -= 1
            do throws(UserDataError) {
                guard let status = try admit(name, in: current) else { continue }
                let next = try current.emptiable(name, status)
                levels.append(Level(name, try next.status()))
                let path = Self.path(root.path, levels)
                current = try DirectoryHandle(at: next.descriptor, DirectoryHandle.name("."), path: path)
            } catch {
                if failure == nil { failure = error }
                if levels.count > last + 1 { levels.removeLast() }
                levels[last].stuck.insert(name)
            }
        }
        if let failure { throw failure }
    }

    /// Deletes files and empty directories. Returns subdirectories that are not empty; none if all other entries are
    /// stuck.
    private mutating func clear(
        _ directory: borrowing DirectoryHandle,
        atMost count: Int,
        stuck: inout Set<Name>,
        failure: inout UserDataError?
    ) -> [Name] {
        var full: [Name] = []
        do throws(UserDataError) {
            var reader = try DirectoryReader(directory)
            while !hasGivenUp, full.count < count, let name = try reader.next(atMost: 1).first {
                guard !stuck.contains(name) else { continue }
                do throws(UserDataError) {
                    guard let status = try admit(name, in: directory) else { continue }
                    if status.st_mode & S_IFMT != S_IFDIR {
                        try unlink(name, status, in: directory)
                    } else if try !directory.removeDirectory(name) {
                        full.append(name)
                    }
                } catch {
                    if failure == nil { failure = error }
                    stuck.insert(name)
                }
            }
        } catch {
            if failure == nil { failure = error }
            // No entry has this name. It marks the directory as not empty.
            stuck.insert([])
        }
        return full
    }

    /// Opens the parent directory. Fails if it is not the directory from which the sweep descended.
    private static func up(
        from directory: borrowing DirectoryHandle,
        to level: Level,
        path: String
    ) throws(UserDataError) -> DirectoryHandle {
        let above = try DirectoryHandle(at: directory.descriptor, DirectoryHandle.name(".."), path: path)
        let status = try above.status()
        guard status.st_dev == level.device, status.st_ino == level.inode else {
            throw UserDataError(
                "remove",
                path,
                code: ESTALE,
                reason: "a program has moved directories in it during the removal",
                remedy: "Have the app stop its work before it removes the data (lsof +D shows who is there)"
            )
        }
        return above
    }

    private static func path(_ root: String, _ levels: [Level]) -> String {
        let names = levels.dropFirst().prefix(shownDepth).map { DirectoryHandle.text($0.name) }
        return ([root] + names).joined(separator: "/")
    }
}
