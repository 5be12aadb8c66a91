import Glibc

/// Deletes entries where they are, because the system cannot move them. On a full disk there is no room for another
/// name. Directories in the lower layer of an overlay, contents of a btrfs subvolume, and encrypted entries without
/// their key cannot be renamed.
///
/// At most two directories are open at a time, whatever the depth of the tree. The way back up is `..`, but only if it
/// is the directory from which the way led down: another program may have moved a directory.
extension TombstoneSweep {
    private struct Level {
        let name: DirectoryHandle.Name
        let device: dev_t
        let inode: ino_t
        var pending: [DirectoryHandle.Name] = []
        var stuck: Set<DirectoryHandle.Name> = []

        init(_ name: DirectoryHandle.Name, _ status: stat) {
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
    mutating func removeInPlace(
        _ name: DirectoryHandle.Name,
        in directory: borrowing DirectoryHandle
    ) throws(UserDataError) {
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

    /// Deletes files and empty directories.
    ///
    /// - Returns: subdirectories that are not empty; none if all other entries are stuck.
    private mutating func clear(
        _ directory: borrowing DirectoryHandle,
        atMost count: Int,
        stuck: inout Set<DirectoryHandle.Name>,
        failure: inout UserDataError?
    ) -> [DirectoryHandle.Name] {
        var full: [DirectoryHandle.Name] = []
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

    /// Opens the parent directory, if it is the one from which the way led down.
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
