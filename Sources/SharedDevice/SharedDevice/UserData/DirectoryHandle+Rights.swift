import CLinux
import Glibc

/// What a directory keeps apart from its entries: rights, access control lists, and attributes.
extension DirectoryHandle {
    /// Takes from the directory what a person could leave in it for themselves or for the next one: access control lists, also the one that new
    /// entries would inherit; attributes of the user (`user.*`), which hold any bytes; the bits for the set-IDs and the sticky bit; and the rights of
    /// group and others to write. What group and others may read, they still may.
    func takeLeftovers() throws(UserDataError) {
        let mode = try status().st_mode & 0o7777
        var kept = mode & ~0o7022 | 0o700
        // With a list, the group's bits of the mode are the most that anybody in the list may do, and not the group's.
        if let list = try attribute(Self.accessList) { kept = kept & ~0o070 | Self.groupRights(list) & 0o050 }
        if kept != mode { guard fchmod(descriptor, kept) == 0 else { throw UserDataError("protect", path) } }
        for name in [Self.accessList, Self.inheritedList] { try removeAttribute(name) }
        for name in try attributes() where name.starts(with: Self.ofUser) { try removeAttribute(name) }
    }

    /// Whether this directory is there under that name: somebody may have put another one in its place.
    func isEntry(_ name: Name, of parent: borrowing DirectoryHandle) throws(UserDataError) -> Bool {
        let own = try status()
        guard let found = try parent.status(of: name) else { return false }
        return own.st_dev == found.st_dev && own.st_ino == found.st_ino
    }

    // MARK: Attributes

    private static let accessList = name("system.posix_acl_access")
    private static let inheritedList = name("system.posix_acl_default")
    private static let ofUser = name("user.").dropLast()

    /// Removes the attribute. It may not be there, and the file system may know none.
    private func removeAttribute(_ name: Name) throws(UserDataError) {
        guard fremovexattr(descriptor, name) == 0 || errno == ENODATA || errno == EOPNOTSUPP else {
            throw UserDataError("remove the attribute \(Self.text(name)) of", path)
        }
    }

    private func attribute(_ name: Name) throws(UserDataError) -> [UInt8]? {
        // The kernel's limit of an attribute's length.
        var bytes = [UInt8](repeating: 0, count: 65536)
        let count = fgetxattr(descriptor, name, &bytes, bytes.count)
        if count >= 0 { return Array(bytes[..<count]) }
        guard errno == ENODATA || errno == EOPNOTSUPP else {
            throw UserDataError("read the attribute \(Self.text(name)) of", path)
        }
        return nil
    }

    /// The names of all attributes.
    private func attributes() throws(UserDataError) -> [Name] {
        // The kernel's limit of the list's length.
        var bytes = [CChar](repeating: 0, count: 65536)
        let count = flistxattr(descriptor, &bytes, bytes.count)
        if count < 0 {
            if errno == EOPNOTSUPP { return [] }
            throw UserDataError("read the attributes of", path)
        }
        return bytes[..<count].split(separator: 0).map { Array($0) + [0] }
    }

    /// What the list lets the directory's own group do, as the mode's bits for the group.
    private static func groupRights(_ list: [UInt8]) -> mode_t {
        // A version of four bytes; then entries with a tag and rights of two bytes each, and a number of four, the lowest byte first.
        var (group, mask) = (mode_t(0), mode_t(0o7))
        var start = 4
        while start + 8 <= list.count {
            let rights = mode_t(list[start + 2]) & 0o7
            switch list[start] {
            case 0x04: group = rights
            case 0x10: mask = rights
            default: break
            }
            start += 8
        }
        return (group & mask) << 3
    }
}

/// What a person may do to the directories that lead to their own data, and undo.
enum OwnDirectories {
    /// Gives this user the owner's rights again to each directory of the path that is this user's and lacks them: a person who took them could
    /// otherwise keep their data for ever. Follows no link.
    ///
    /// - Returns: whether a directory has got rights that it lacked.
    static func regainRights(along path: String) -> Bool {
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
