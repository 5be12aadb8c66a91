import CLinux
import DeviceConfiguration
import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Testing

@_spi(Extensions) @testable import SharedDevice

/// The deletion runs in a child with the rights of one user, as the adapter does it. Root's rights would hide the
/// effect of what a user can do.
@Suite("A user cannot prevent the deletion of data or leave something behind")
struct StubbornDataTests {
    private let user: uid_t = geteuid() == 0 ? 65534 : geteuid()
    private let directory: TemporaryDirectory
    /// The user's own directory, which contains the declared one.
    private var home: String { "\(directory.path)/home" }
    private var data: String { "\(home)/data" }

    init() throws {
        directory = try TemporaryDirectory("stubborn-data")
        succeed(chmod(directory.path, 0o755))
        for path in [home, data] { make(path) }
    }

    private func own(_ path: String) { #expect(geteuid() != 0 || lchown(path, user, user) == 0) }

    private func make(_ path: String) {
        makeDirectory(path)
        own(path)
    }

    private func write(_ path: String) throws {
        try writeFile("ada", to: path)
        own(path)
    }

    private func mode(_ path: String) -> mode_t {
        var status = stat()
        return lstat(path, &status) == 0 ? status.st_mode & 0o7777 : 0
    }

    /// Deletes as the user. Returns the error, or an empty text.
    private func remove(_ path: String) async throws -> String {
        let words = ["remove", "--user", "\(user)", "--", path]
        let child = try ChildProcess(ChildProcess.built("shared-device-cleanup"), words)
        let status = await child.exitStatus(within: .seconds(60))
        let text = child.lines.joined(separator: "\n") + child.errorText
        return status == 0 ? "" : "status \(status): \(text)"
    }

    @Test(
        "data is deleted although the owner's rights are removed from it or above it",
        arguments: ["data", "data/\(DeclaredPath.tombstones)", "data/profile", "data/profile/deep", ".", "other"]
    )
    func rightsTaken(place: String) async throws {
        for path in ["profile", "profile/deep", DeclaredPath.tombstones] { make("\(data)/\(path)") }
        for path in ["secret", "profile/secret", "profile/deep/secret", "\(DeclaredPath.tombstones)/secret"] {
            try write("\(data)/\(path)")
        }
        // In the case “other”, the user has also closed a directory between the data and the closed `place`.
        let declared = place == "other" ? "\(home)/other/further/data" : data
        if place == "other" {
            for path in ["other", "other/further"] { make("\(home)/\(path)") }
            succeed(rename(data, declared))
            succeed(chmod("\(home)/other/further", 0))
        }
        succeed(chmod("\(home)/\(place)", 0))
        #expect(try await remove(declared) == "")
        #expect(exists(declared) && names(in: declared).isEmpty)
    }

    @Test("a declared file is deleted from a directory that its owner has closed")
    func fileInClosedDirectory() async throws {
        try write("\(data)/recent")
        succeed(chmod(data, 0o500))
        #expect(try await remove("\(data)/recent") == "")
        #expect(names(in: data).isEmpty)
    }

    /// An access control list that grants rights to another user.
    private func list(group: UInt8, mask: UInt8) -> [UInt8] {
        func entry(_ tag: UInt8, _ rights: UInt8, _ number: [UInt8] = [255, 255, 255, 255]) -> [UInt8] {
            [tag, 0, rights, 0] + number
        }
        return [2, 0, 0, 0] + entry(0x01, 7) + entry(0x02, 7, [5, 0, 0, 0]) + entry(0x04, group) + entry(0x10, mask)
            + entry(0x20, 0)
    }

    private func attributes() -> Set<String> {
        var bytes = [CChar](repeating: 0, count: 4096)
        let count = listxattr(data, &bytes, bytes.count)
        let names = bytes[..<max(0, count)].split(separator: 0)
        return Set(names.map { String(decoding: $0.map(UInt8.init(bitPattern:)), as: UTF8.self) })
    }

    @Test("no ACL, attribute or mode bit is left, and no ACL becomes group permissions")
    func leftovers() async throws {
        try write("\(data)/secret")
        succeed(chmod(data, 0o7777))
        let kept = attributes()
        for (name, value) in [
            ("user.secret", Array("ada".utf8)), ("user.", Array("ada".utf8)),
            ("system.posix_acl_access", list(group: 5, mask: 7)), ("system.posix_acl_default", list(group: 7, mask: 7)),
        ] where setxattr(data, name, value, value.count, 0) != 0 {
            try #require(name == "user." || errno != EOPNOTSUPP, "the file system has no \(name)")
        }
        #expect(attributes().contains("user.secret") && attributes().contains("system.posix_acl_default"))
        #expect(try await remove(data) == "")
        #expect(attributes() == kept)
        // The permissions of the group's entry, not of the mask; none for other users.
        #expect(mode(data) == 0o750)
        let closed = list(group: 0, mask: 7)
        succeed(setxattr(data, "system.posix_acl_access", closed, closed.count, 0))
        #expect(mode(data) == 0o770)
        #expect(try await remove(data) == "")
        #expect(mode(data) == 0o700)
    }

    @Test(
        "data is deleted from a full disk, filled with files or directories",
        .needsMounts,
        arguments: ["files", "directories", "of others"]
    )
    func fullDisk(filler: String) async throws {
        let (disk, full) = ("\(directory.path)/disk", "\(directory.path)/disk/data")
        succeed(mkdir(disk, 0o755))
        succeed(mount("none", disk, "tmpfs", 0, "nr_inodes=200"))
        defer { umount2(disk, Int32(MNT_DETACH)) }
        make(full)
        make("\(full)/profile")
        try write("\(full)/profile/secret")
        for number in 0..<200 {
            switch filler {
            case "files": close(open("\(full)/\(number)", O_CREAT | O_WRONLY, 0o600))
            case "directories": mkdir("\(full)/profile/\(number)", 0o700)
            default: close(open("\(disk)/\(number)", O_CREAT | O_WRONLY, 0o600))
            }
        }
        #expect(mkdir("\(full)/another", 0o700) != 0 && errno == ENOSPC)
        for path in try FileManager.default.subpathsOfDirectory(atPath: full) { own("\(full)/\(path)") }
        #expect(try await remove(full) == "")
        #expect(exists(full) && names(in: full).isEmpty)
        #expect(filler != "of others" || names(in: disk).count > 100)
    }

    @Test("data is deleted from an overlay's lower layer, where no move is possible", .needsMounts)
    func overlay() async throws {
        let place = "\(directory.path)/overlay"
        succeed(mkdir(place, 0o755))
        succeed(mount("none", place, "tmpfs", 0, nil))
        defer { umount2(place, Int32(MNT_DETACH)) }
        for path in ["lower", "upper", "work", "all"] { succeed(mkdir("\(place)/\(path)", 0o755)) }
        make("\(place)/lower/data")
        for path in ["profile", "profile/deep", "profile/empty"] { make("\(place)/lower/data/\(path)") }
        for path in ["secret", "profile/secret", "profile/deep/secret"] { try write("\(place)/lower/data/\(path)") }
        let options = "lowerdir=\(place)/lower,upperdir=\(place)/upper,workdir=\(place)/work"
        guard mount("overlay", "\(place)/all", "overlay", 0, options) == 0 else {
            print("the kernel has no overlay here")
            return
        }
        defer { umount2("\(place)/all", Int32(MNT_DETACH)) }
        let path = "\(place)/all/data"
        try write("\(path)/profile/deep/newer")
        succeed(chmod("\(path)/profile", 0))
        #expect(try await remove(path) == "")
        #expect(exists(path) && names(in: path).isEmpty)
    }

    private static let hasBtrfs: Bool = {
        guard Mounts.areAllowed, let list = try? String(contentsOfFile: "/proc/filesystems", encoding: .utf8) else {
            return false
        }
        return list.contains("btrfs") && (try? ChildProcess("mkfs.btrfs", ["--version"]).waitUntilExit()) == 0
    }()

    private func run(_ program: String, _ arguments: String...) async throws {
        let child = try ChildProcess(program, arguments)
        let status = await child.exitStatus(within: .seconds(60))
        #expect(status == 0, "\(program): \(child.errorText)")
    }

    @Test(
        "data is deleted from btrfs subvolumes, which have their own device number",
        .enabled(if: hasBtrfs, "there is no btrfs, or no mkfs.btrfs")
    )
    func subvolume() async throws {
        let (image, disk) = ("\(directory.path)/image", "\(directory.path)/disk")
        succeed(mkdir(disk, 0o755))
        try await run("truncate", "-s", "256M", image)
        try await run("mkfs.btrfs", "-q", image)
        try await run("mount", "-o", "loop", image, disk)
        defer { umount2(disk, Int32(MNT_DETACH)) }
        make("\(disk)/data")
        make("\(disk)/data/profile")
        for path in ["data/one", "data/one/inner", "data/profile/two", "data/profile/locked"] {
            try await run("btrfs", "subvolume", "create", "\(disk)/\(path)")
            own("\(disk)/\(path)")
            make("\(disk)/\(path)/folder")
            try write("\(disk)/\(path)/folder/secret")
        }
        // Its owner can set and clear this property.
        try await run("btrfs", "property", "set", "\(disk)/data/profile/locked", "ro", "true")
        #expect(try await remove("\(disk)/data") == "")
        #expect(names(in: "\(disk)/data").isEmpty)
    }

    /// Empties the data in place, as this process's user.
    private func emptyInPlace(_ sweep: inout TombstoneSweep) throws {
        try sweep.emptyInPlace(try DirectoryHandle(DirectoryHandle.name(data), path: data))
    }

    @Test("a deep and wide tree is emptied in place with few descriptors")
    func deepInPlace() throws {
        var current = open(data, O_RDONLY | O_DIRECTORY)
        // More levels than a process has descriptors, and a path longer than the system's limit.
        for depth in 0..<5_000 {
            succeed(mkdirat(current, "deep", 0o700))
            let next = openat(current, "deep", O_RDONLY | O_DIRECTORY)
            close(openat(current, "f", O_CREAT | O_WRONLY, 0o600))
            if depth % 50 == 0 { succeed(fchmod(current, 0o500)) }
            close(current)
            current = next
        }
        close(current)
        for number in 0..<500 {
            makeDirectory("\(data)/wide\(number)")
            close(open("\(data)/wide\(number)/f", O_CREAT | O_WRONLY, 0o600))
        }
        let counts = Counts()
        let data = data
        var sweep = TombstoneSweep(truncates: false) { checkpoint in
            counts.calls += 1
            guard case .unlinked = checkpoint, counts.calls % 500 == 0 else { return }
            let open = (0..<1024).count { descriptor in
                let target = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(descriptor)")
                return target?.hasPrefix(data) == true
            }
            counts.descriptors = max(counts.descriptors, open)
        }
        succeed(chmod(data, 0o700))
        try emptyInPlace(&sweep)
        #expect(names(in: data).isEmpty)
        #expect(sweep.removed.files == 5_500)
        #expect((1...8).contains(counts.descriptors), "descriptors in the tree at a time")
    }

    @Test("the deletion in place crosses no mount and follows no link", .needsMounts)
    func mountInPlace() throws {
        let outside = "\(directory.path)/outside"
        succeed(mkdir(outside, 0o700))
        try write("\(outside)/file")
        for path in ["profile", "profile/bind"] { make("\(data)/\(path)") }
        try write("\(data)/profile/secret")
        succeed(symlink(outside, "\(data)/profile/link"))
        succeed(mount(outside, "\(data)/profile/bind", nil, UInt(MS_BIND), nil))
        defer { umount2("\(data)/profile/bind", Int32(MNT_DETACH)) }
        var sweep = TombstoneSweep(truncates: true) { _ in }
        let error = #expect(throws: UserDataError.self) { try emptyInPlace(&sweep) }
        #expect(error?.code == EBUSY && error?.path == "\(data)/profile/bind")
        #expect(names(in: "\(data)/profile") == ["bind"] && names(in: outside) == ["file"])
    }

    @Test("a directory that is moved during the deletion in place does not lead outside")
    func movedInPlace() throws {
        let outside = "\(directory.path)/outside"
        make(outside)
        try write("\(outside)/kept")
        for path in ["a", "a/b"] { make("\(data)/\(path)") }
        try write("\(data)/a/b/secret")
        let data = data
        var sweep = TombstoneSweep(truncates: false) { _ in rename("\(data)/a/b", "\(outside)/b") }
        let error = #expect(throws: UserDataError.self) { try emptyInPlace(&sweep) }
        #expect(error?.code == ESTALE)
        #expect(names(in: outside) == ["b", "kept"])
    }

    @Test("a name cannot break a line of the log or control the terminal", .needsRoot)
    func controlCharacters() async throws {
        let place = "\(data)/a\n\u{1B}[2J\r\u{202E}b"
        makeDirectory(place)
        try writeFile("grace", to: "\(place)/file")
        let text = try await remove(data)
        #expect(text.contains("Give it and its directory to the user"), "\(text)")
        #expect(text.unicodeScalars.filter { $0.properties.generalCategory == .control }.allSatisfy { $0 == "\n" })
        #expect(text.contains("\\u{a}\\u{1b}[2J\\u{d}\\u{202e}b"), "\(text)")
        #expect(text.split(separator: "\n").first?.contains("chown") == true, "all of it is on the first line")
        let error = UserDataError("remove", place, reason: "a\nb", remedy: "c\u{1B}")
        #expect(error.description == "could not remove \(data)/a\\u{a}\\u{1b}[2J\\u{d}\\u{202e}b: a\\u{a}b. c\\u{1b}")
    }

    @Test("a file that replaces a closed directory keeps its mode")
    func exchangedForAFile() throws {
        let directory = try TemporaryDirectory("exchanged")
        let path = "\(directory.path)/closed"
        var status = stat()
        try #require(mkdir(path, 0) == 0 && lstat(path, &status) == 0 && rmdir(path) == 0)
        try "a program".write(toFile: path, atomically: false, encoding: .utf8)
        try #require(chmod(path, 0o640) == 0)
        let parent = try DirectoryHandle(DirectoryHandle.name(directory.path), path: directory.path)
        #expect(throws: UserDataError.self) { _ = try parent.emptiable(DirectoryHandle.name("closed"), status) }
        try #require(lstat(path, &status) == 0)
        #expect(status.st_mode & 0o7777 == 0o640)
    }
}
