import CLinux
import Glibc

/// An open directory. File names are bytes that end with a zero, because not every file name is valid text.
struct DirectoryHandle: ~Copyable {
    typealias Name = [CChar]

    let descriptor: CInt
    /// Where it is, for errors.
    let path: String

    /// Opens a directory. A symbolic link at its name is an error.
    init(at parent: CInt = AT_FDCWD, _ name: Name, path: String) throws(UserDataError) {
        descriptor = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        self.path = path
        guard descriptor >= 0 else { throw UserDataError("open", path) }
    }

    /// Takes over an open descriptor.
    init(taking descriptor: CInt, path: String) {
        self.descriptor = descriptor
        self.path = path
    }

    deinit { close(descriptor) }

    static func name(_ text: String) -> Name { Array(text.utf8CString) }

    func path(of name: Name) -> String { "\(path)/\(Self.text(name))" }

    /// The name for people: on one line, and without anything that a terminal would act on.
    static func text(_ name: Name) -> String {
        UserDataError.printable(String(decoding: name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self))
    }

    /// Makes a directory for this user only; returns false if it was there.
    func makeDirectory(_ name: Name) throws(UserDataError) -> Bool {
        if mkdirat(descriptor, name, 0o700) == 0 { return true }
        guard errno == EEXIST else { throw UserDataError("make the directory", path(of: name)) }
        return false
    }

    /// Removes a directory in it; returns false if that holds something.
    func removeDirectory(_ name: Name) throws(UserDataError) -> Bool {
        if unlinkat(descriptor, name, AT_REMOVEDIR) == 0 || errno == ENOENT { return true }
        guard errno == ENOTEMPTY || errno == EEXIST else { throw UserDataError("remove", path(of: name)) }
        return false
    }

    /// Opens a directory in it, and takes all other users' rights to that directory.
    func privateDirectory(_ name: Name) throws(UserDataError) -> DirectoryHandle {
        let path = path(of: name)
        let directory: DirectoryHandle
        do throws(UserDataError) {
            directory = try DirectoryHandle(at: descriptor, name, path: path)
        } catch {
            // Somebody has taken the owner's own rights, which the owner may give again.
            guard error.code == EACCES, fchmodat(descriptor, name, 0o700, AT_SYMLINK_NOFOLLOW) == 0 else { throw error }
            directory = try DirectoryHandle(at: descriptor, name, path: path)
        }
        try directory.makePrivate()
        return directory
    }

    /// Opens a directory in it whose contents are to be deleted: with all rights of its owner, which a program may have taken, and not if
    /// something is mounted there.
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

    /// Gives the owner all rights to a directory in it, if that is this user. By a descriptor: what another one puts in its place keeps its rights. If this
    /// fails, the next steps report it.
    private func allowOwner(_ name: Name) {
        // O_PATH, which needs no right to read it; Swift's Glibc leaves it out.
        let pathOnly: CInt = 0o10_000_000
        let directory = openat(descriptor, name, pathOnly | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard directory >= 0 else { return }
        defer { close(directory) }
        var status = stat()
        guard fstat(directory, &status) == 0, status.st_uid == geteuid() else { return }
        chmod("/proc/self/fd/\(directory)", status.st_mode & 0o7777 | 0o700)
    }

    /// Undoes that a btrfs subvolume is read-only, which its owner may do as well. The root of a subvolume has a number of its own.
    private func allowWriting() {
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_ino == 256 else { return }
        var flags: UInt64 = 0
        // BTRFS_IOC_SUBVOL_SETFLAGS, which other file systems do not know. If it fails, the next steps report it.
        _ = ioctl(descriptor, 0x4008_941A, &flags)
    }

    /// Asks for the open directory and not for its name, so that nothing is mounted in between. The device's number does not tell: that of a
    /// btrfs subvolume differs although nothing is mounted, and that of a bind mount does not.
    func refuseMount() throws(UserDataError) {
        guard CLinux_isMountPoint(descriptor, "") == 0 else { throw .mountPoint(path) }
    }

    private func makePrivate() throws(UserDataError) {
        let status = try status()
        guard status.st_uid == geteuid() else {
            throw UserDataError(
                "use",
                path,
                code: EPERM,
                reason: "it belongs to the user with the number \(status.st_uid)",
                remedy: "Give it and its directory to the user that runs this app (chown)"
            )
        }
        guard status.st_mode & 0o7777 != 0o700 else { return }
        guard fchmod(descriptor, 0o700) == 0 else { throw UserDataError("protect", path) }
    }

    func status() throws(UserDataError) -> stat {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw UserDataError("look at", path) }
        return status
    }

    /// The status of the entry of this name, of a symbolic link itself; `nil` if there is none.
    func status(of name: Name) throws(UserDataError) -> stat? {
        var status = stat()
        guard fstatat(descriptor, name, &status, AT_SYMLINK_NOFOLLOW) == 0 else {
            guard errno == ENOENT else { throw UserDataError("look at", path(of: name)) }
            return nil
        }
        return status
    }

    /// The names in it, all at once.
    func names() throws(UserDataError) -> [Name] {
        var reader = try DirectoryReader(self)
        return try reader.next(atMost: .max)
    }

    /// Forces the directory to the disk.
    func sync() throws(UserDataError) {
        guard fsync(descriptor) == 0 else { throw UserDataError("sync", path) }
    }
}

/// Reads a directory's names in parts, so that a directory of any size needs little memory. Entries may be removed meanwhile; whether a new one is
/// read is not certain.
struct DirectoryReader: ~Copyable {
    private let stream: OpaquePointer
    private let path: String

    init(_ directory: borrowing DirectoryHandle) throws(UserDataError) {
        path = directory.path
        // The stream takes over a descriptor, and changes its position: so it gets a second one.
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

    /// The next names; empty at the end.
    mutating func next(atMost count: Int) throws(UserDataError) -> [DirectoryHandle.Name] {
        // The offset is never missing: `d_name` is a stored field. An entry may be shorter than the struct, so `pointee` would read beyond it.
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

/// The name of an account's directory. Different identifiers have different names, even on a file system that ignores case, and no name
/// leads out of the directory that holds it.
///
/// Lower-case letters, digits and `-` stay as they are, and so does `.` except at the beginning. Every other byte becomes `_` and two
/// hexadecimal digits. The empty identifier becomes a single `_`.
enum AccountDirectoryName {
    /// The longest name that file systems accept, in bytes.
    static let limit = 255

    /// The name; `nil` if it would be longer than ``limit``.
    static func name(for identifier: String) -> String? {
        guard !identifier.isEmpty else { return "_" }
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
            guard name.count <= limit else { return nil }
        }
        return String(decoding: name, as: UTF8.self)
    }

    private static func digit(_ value: UInt8) -> UInt8 {
        value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") + value - 10
    }
}

extension Account {
    /// The account as the name of a directory, as ``UserDataDirectory`` names it; `nil` if the identifier is too long for one.
    package var directoryName: String? { AccountDirectoryName.name(for: identifier) }
}
