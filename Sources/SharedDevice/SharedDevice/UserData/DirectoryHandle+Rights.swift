import CLinux
import Glibc

extension DirectoryHandle {
    /// Removes everything in which one person could leave data for the next. These are access control lists, including
    /// the default list for new entries, and extended attributes (`user.*`), which hold arbitrary bytes. Set-ID bits,
    /// the sticky bit, and the write rights of group and others go, too. The read rights of group and others stay.
    func takeLeftovers() throws(UserDataError) {
        let mode = try status().st_mode & 0o7777
        var kept = mode & ~0o7022 | 0o700
        // With an access control list, the mode's group bits are the list's mask, not the group's rights.
        if let list = try attribute(Self.accessList) { kept = kept & ~0o070 | Self.groupRights(list) & 0o050 }
        if kept != mode { guard fchmod(descriptor, kept) == 0 else { throw UserDataError("protect", path) } }
        for name in [Self.accessList, Self.inheritedList] { try removeAttribute(name) }
        for name in try attributes() where name.starts(with: Self.ofUser) { try removeAttribute(name) }
    }

    /// Whether the entry of this name is this directory: another program may have replaced it.
    func isEntry(_ name: Name, of parent: borrowing DirectoryHandle) throws(UserDataError) -> Bool {
        let own = try status()
        guard let found = try parent.status(of: name) else { return false }
        return own.st_dev == found.st_dev && own.st_ino == found.st_ino
    }

    // MARK: Attributes

    private static let accessList = name("system.posix_acl_access")
    private static let inheritedList = name("system.posix_acl_default")
    private static let ofUser = name("user.").dropLast()

    /// Removes the attribute if it exists and the file system supports it.
    private func removeAttribute(_ name: Name) throws(UserDataError) {
        guard fremovexattr(descriptor, name) == 0 || errno == ENODATA || errno == EOPNOTSUPP else {
            throw UserDataError("remove the attribute \(Self.text(name)) of", path)
        }
    }

    private func attribute(_ name: Name) throws(UserDataError) -> [UInt8]? {
        // The kernel's limit for an attribute's value (XATTR_SIZE_MAX).
        var bytes = [UInt8](repeating: 0, count: 65536)
        let count = fgetxattr(descriptor, name, &bytes, bytes.count)
        if count >= 0 { return Array(bytes[..<count]) }
        guard errno == ENODATA || errno == EOPNOTSUPP else {
            throw UserDataError("read the attribute \(Self.text(name)) of", path)
        }
        return nil
    }

    private func attributes() throws(UserDataError) -> [Name] {
        // The kernel's limit for the list of names (XATTR_LIST_MAX).
        var bytes = [CChar](repeating: 0, count: 65536)
        let count = flistxattr(descriptor, &bytes, bytes.count)
        if count < 0 {
            if errno == EOPNOTSUPP { return [] }
            throw UserDataError("read the attributes of", path)
        }
        return bytes[..<count].split(separator: 0).map { Array($0) + [0] }
    }

    private static func groupRights(_ list: [UInt8]) -> mode_t {
        // The list has a version of four bytes, then entries of a tag and rights (two bytes each) and an id (four
        // bytes), little-endian.
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

/// Restores rights to the directories on the path to a user's own data, which that user could have removed.
enum OwnDirectories {
    /// Restores the owner's rights to each directory of the path that belongs to this user and lacks them. Otherwise a
    /// person could keep their data for ever by removing the rights. Follows no link.
    ///
    /// - Returns: whether a directory has regained rights.
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
