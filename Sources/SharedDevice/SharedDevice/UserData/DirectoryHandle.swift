import Basics
import CLinux
import Glibc

/// An open directory. File names are NUL-terminated bytes, because not every file name is valid UTF-8.
struct DirectoryHandle: ~Copyable {
    typealias Name = [CChar]

    let descriptor: CInt
    let path: String

    /// Opens a directory. A symbolic link at its name is an error.
    init(at parent: CInt = AT_FDCWD, _ name: Name, path: String) throws(UserDataError) {
        descriptor = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        self.path = path
        guard descriptor >= 0 else { throw UserDataError("open", path) }
    }

    init(taking descriptor: CInt, path: String) {
        self.descriptor = descriptor
        self.path = path
    }

    deinit { close(descriptor) }

    static func name(_ text: String) -> Name { Array(text.utf8CString) }

    func path(of name: Name) -> String { "\(path)/\(Self.text(name))" }

    /// The name for display: on one line, and without terminal control characters.
    static func text(_ name: Name) -> String {
        String(decoding: name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self).printable
    }

    /// Creates a directory for this user only; returns false if it exists.
    func makeDirectory(_ name: Name) throws(UserDataError) -> Bool {
        if mkdirat(descriptor, name, 0o700) == 0 { return true }
        guard errno == EEXIST else { throw UserDataError("make the directory", path(of: name)) }
        return false
    }

    /// Removes a subdirectory; returns false if it is not empty.
    func removeDirectory(_ name: Name) throws(UserDataError) -> Bool {
        if unlinkat(descriptor, name, AT_REMOVEDIR) == 0 || errno == ENOENT { return true }
        guard errno == ENOTEMPTY || errno == EEXIST else { throw UserDataError("remove", path(of: name)) }
        return false
    }

    /// Opens a subdirectory, and removes all other users' rights to it.
    func privateDirectory(_ name: Name) throws(UserDataError) -> DirectoryHandle {
        let path = path(of: name)
        let directory: DirectoryHandle
        do throws(UserDataError) {
            directory = try DirectoryHandle(at: descriptor, name, path: path)
        } catch {
            // The owner's own rights are missing; the owner may restore them.
            guard error.code == EACCES, fchmodat(descriptor, name, 0o700, AT_SYMLINK_NOFOLLOW) == 0 else { throw error }
            directory = try DirectoryHandle(at: descriptor, name, path: path)
        }
        let status = try directory.status()
        guard status.st_uid == geteuid() else {
            let remedy = "Give it and its directory to the user that runs this app (chown)"
            throw UserDataError("use", path, code: EPERM, reason: "it belongs to user \(status.st_uid)", remedy: remedy)
        }
        if status.st_mode & 0o7777 != 0o700 {
            guard fchmod(directory.descriptor, 0o700) == 0 else { throw UserDataError("protect", path) }
        }
        return directory
    }

    /// Opens a subdirectory whose contents are to be deleted. Restores the owner's rights, which a program may have
    /// removed. Fails if a file system is mounted there.
    func emptiable(_ name: Name, _ status: stat) throws(UserDataError) -> DirectoryHandle {
        if status.st_mode & 0o700 != 0o700 {
            guard CLinux_isMountPoint(descriptor, name) == 0 else { throw .mountPoint(path(of: name)) }
            allowOwner(name)
        }
        let directory = try DirectoryHandle(at: descriptor, name, path: path(of: name))
        try directory.refuseMount()
        directory.allowWriting()
        return directory
    }

    /// Gives the owner all rights to a subdirectory, if the owner is this user. It uses a descriptor, so that a
    /// replacement for the directory keeps its rights. If this fails, the next steps report it.
    private func allowOwner(_ name: Name) {
        // O_PATH, which needs no read permission; Swift's Glibc does not export it.
        let pathOnly: CInt = 0o10_000_000
        let directory = openat(descriptor, name, pathOnly | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard directory >= 0 else { return }
        defer { close(directory) }
        var status = stat()
        guard fstat(directory, &status) == 0, status.st_uid == geteuid() else { return }
        chmod("/proc/self/fd/\(directory)", status.st_mode & 0o7777 | 0o700)
    }

    /// Makes a read-only btrfs subvolume writable, which its owner may do. The root of a subvolume has inode number
    /// 256.
    private func allowWriting() {
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_ino == 256 else { return }
        var flags: UInt64 = 0
        // BTRFS_IOC_SUBVOL_SETFLAGS; other file systems reject it. If it fails, the next steps report it.
        _ = ioctl(descriptor, 0x4008_941A, &flags)
    }

    /// Throws if the open directory is a mount point; by its name, something could be mounted in between. The device
    /// number does not tell: a btrfs subvolume has its own without a mount, and a bind mount does not.
    func refuseMount() throws(UserDataError) {
        guard CLinux_isMountPoint(descriptor, "") == 0 else { throw .mountPoint(path) }
    }

    func status() throws(UserDataError) -> stat {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw UserDataError("look at", path) }
        return status
    }

    /// Returns the status of an entry, without following a symbolic link; `nil` if there is none.
    func status(of name: Name) throws(UserDataError) -> stat? {
        var status = stat()
        guard fstatat(descriptor, name, &status, AT_SYMLINK_NOFOLLOW) == 0 else {
            guard errno == ENOENT else { throw UserDataError("look at", path(of: name)) }
            return nil
        }
        return status
    }

    func names() throws(UserDataError) -> [Name] {
        var reader = try DirectoryReader(self)
        return try reader.next(atMost: .max)
    }

    func sync() throws(UserDataError) {
        guard fsync(descriptor) == 0 else { throw UserDataError("sync", path) }
    }
}

/// Reads a directory's names in parts, so that a directory of any size needs little memory. Entries may be removed
/// during the reading. New entries may or may not be read.
struct DirectoryReader: ~Copyable {
    private let stream: OpaquePointer
    private let path: String

    init(_ directory: borrowing DirectoryHandle) throws(UserDataError) {
        path = directory.path
        // The stream takes ownership of the descriptor and changes its position, so it gets a separate one.
        let copy = openat(directory.descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard copy >= 0 else { throw UserDataError("read", path) }
        guard let stream = fdopendir(copy) else {
            let error = UserDataError("read", path)
            close(copy)
            throw error
        }
        self.stream = stream
    }

    deinit { closedir(stream) }

    mutating func next(atMost count: Int) throws(UserDataError) -> [DirectoryHandle.Name] {
        // `d_name` is a stored field, so the offset is never `nil`. An entry may be shorter than the struct, so
        // `pointee` would read beyond it.
        let offset = MemoryLayout<dirent>.offset(of: \.d_name) ?? 0
        var names: [DirectoryHandle.Name] = []
        while names.count < count {
            errno = 0
            guard let entry = readdir(stream) else {
                guard errno == 0 else { throw UserDataError("read", path) }
                break
            }
            let start = UnsafeRawPointer(entry).advanced(by: offset).assumingMemoryBound(to: CChar.self)
            let name = Array(UnsafeBufferPointer(start: start, count: strlen(start) + 1))
            if name != DirectoryHandle.name("."), name != DirectoryHandle.name("..") { names.append(name) }
        }
        return names
    }
}

extension Account {
    /// The name of the account's directory in a ``UserDataDirectory``; `nil` if it is longer than file systems accept.
    /// Different identifiers have different names, even on a file system that ignores case, and no name leads out of
    /// the parent directory.
    ///
    /// Lower-case letters, digits and `-` stay as they are, and so does `.` except at the beginning. Every other byte
    /// becomes `_` and two hexadecimal digits. The empty identifier becomes a single `_`.
    @_spi(Extensions) public var directoryName: String? {
        guard !identifier.isEmpty else { return "_" }
        func digit(_ value: UInt8) -> UInt8 {
            value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") + value - 10
        }
        var name: [UInt8] = []
        for byte in identifier.utf8 {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"):
                name.append(byte)
            case UInt8(ascii: ".") where !name.isEmpty:
                name.append(byte)
            default:
                name += [UInt8(ascii: "_"), digit(byte >> 4), digit(byte & 15)]
            }
            guard name.count <= 255 else { return nil }
        }
        return String(decoding: name, as: UTF8.self)
    }
}

extension DirectoryHandle {
    /// Removes everything in which one person could leave data for the next: access control lists, also the default
    /// list for new entries, extended attributes (`user.*`), set-ID and sticky bits, and the write rights of group and
    /// others.
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
