import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Testing

@_spi(Extensions) @testable import SharedDevice

@Suite("The paths of a manifest, and nothing else, are deleted")
struct DeclaredPathTests {
    private let directory: TemporaryDirectory
    private var data: String { "\(directory.path)/data" }
    private var outside: String { "\(directory.path)/outside" }

    init() throws {
        directory = try TemporaryDirectory("declared-path")
        for path in [data, outside] { succeed(mkdir(path, 0o700)) }
    }

    private func write(_ text: String, to path: String) throws {
        try FileManager.default.createDirectory(
            atPath: URL(fileURLWithPath: path).deletingLastPathComponent().path,
            withIntermediateDirectories: true
        )
        try text.write(toFile: path, atomically: false, encoding: .utf8)
    }

    private func names(_ path: String) -> [String] {
        ((try? FileManager.default.contentsOfDirectory(atPath: path)) ?? []).sorted()
    }

    @Test("a directory is emptied and keeps its mode; a second removal finds nothing")
    func empties() throws {
        try write("ada", to: "\(data)/profile/Cookies")
        try write("ada", to: "\(data)/.hidden")
        succeed(chmod(data, 0o750))
        #expect(try DeclaredPath(data).remove().files == 2)
        #expect(names(data).isEmpty)
        var status = stat()
        #expect(stat(data, &status) == 0 && status.st_mode & 0o7777 == 0o750)
        #expect(try DeclaredPath(data).remove().files == 0)
    }

    @Test("a file is deleted, and a missing path is no error")
    func file() throws {
        try write("ada", to: "\(data)/recent.xbel")
        #expect(try DeclaredPath("\(data)/recent.xbel").remove().bytes == 3)
        #expect(names(data).isEmpty)
        #expect(try DeclaredPath("\(data)/recent.xbel").remove().files == 0)
        #expect(try DeclaredPath("\(directory.path)/no/such/place").remove().files == 0)
    }

    @Test("links are deleted without their targets, and hard links without their content")
    func links() throws {
        try write("grace", to: "\(outside)/file")
        try write("grace", to: "\(outside)/directory/file")
        succeed(symlink("\(outside)/file", "\(data)/link"))
        succeed(symlink("\(outside)/directory", "\(data)/directory"))
        succeed(symlink("/", "\(data)/root"))
        succeed(link("\(outside)/file", "\(data)/second"))
        _ = try DeclaredPath(data).remove()
        #expect(names(data).isEmpty)
        #expect(try String(contentsOfFile: "\(outside)/file", encoding: .utf8) == "grace")
        #expect(names("\(outside)/directory") == ["file"])
    }

    @Test("a path that leads through a link is refused, and the link's target stays")
    func linkInPath() throws {
        try write("grace", to: "\(outside)/profile/file")
        succeed(symlink(outside, "\(directory.path)/link"))
        #expect(throws: UserDataError.self) { try DeclaredPath("\(directory.path)/link/profile").remove() }
        #expect(names("\(outside)/profile") == ["file"])
    }

    @Test("a path that is itself a link is refused, because its target would stay")
    func linkAtPath() throws {
        try write("ada", to: "\(outside)/file")
        succeed(symlink(outside, "\(directory.path)/link"))
        let error = #expect(throws: UserDataError.self) { try DeclaredPath("\(directory.path)/link").remove() }
        #expect(error?.reason.contains("symbolic link") == true && error?.remedy.contains("realpath") == true)
        #expect(names(outside) == ["file"] && access("\(directory.path)/link", F_OK) == 0)
    }

    @Test("a directory or file that replaces the deleted one is deleted too")
    func exchanged() throws {
        try write("ada", to: "\(data)/file")
        let counts = Counts()
        let (data, old) = (data, "\(directory.path)/old")
        let removed = try DeclaredPath(data) { checkpoint in
            guard checkpoint == .buried else { return }
            counts.unlinked += 1
            guard counts.unlinked == 1 else { return }
            #expect(rename(data, old) == 0 && mkdir(data, 0o700) == 0)
            close(open("\(data)/newer", O_CREAT | O_WRONLY, 0o600))
        }.remove()
        #expect(removed.files == 2)
        #expect(names(data).isEmpty && names(old).isEmpty)
        try write("ada", to: "\(data)/recent")
        #expect(
            try DeclaredPath("\(data)/recent") { checkpoint in
                counts.unlinked += 1
                if checkpoint == .unlinked, counts.unlinked < 6 {
                    close(open("\(data)/recent", O_CREAT | O_WRONLY, 0o600))
                }
            }.remove().files > 1
        )
        #expect(names(data).isEmpty)
    }

    @Test("a directory that is replaced endlessly is an error that says so")
    func exchangedWithoutEnd() throws {
        let counts = Counts()
        let (data, place) = (data, directory.path)
        let error = #expect(throws: UserDataError.self) {
            _ = try DeclaredPath(data) { checkpoint in
                guard checkpoint == .swept else { return }
                counts.unlinked += 1
                #expect(rename(data, "\(place)/\(counts.unlinked)") == 0 && mkdir(data, 0o700) == 0)
            }.remove()
        }
        #expect(error?.reason.contains("still writes") == true)
    }

    @Test("a name that begins with a combining mark is deleted")
    func combiningMark() throws {
        try write("ada", to: "\(data)/\u{301}cache/file")
        try write("grace", to: "\(data)/file")
        _ = try DeclaredPath("\(data)/\u{301}cache").remove()
        #expect(names("\(data)/\u{301}cache").isEmpty)
        #expect(names(data).count == 2)
    }

    @Test("pipes, sockets and devices are deleted as names")
    func specialFiles() throws {
        succeed(mkfifo("\(data)/pipe", 0o600))
        if geteuid() == 0 { succeed(mknod("\(data)/null", S_IFCHR | 0o600, makedev(1, 3))) }
        _ = try DeclaredPath(data).remove()
        #expect(names(data).isEmpty)
        #expect(access("/dev/null", W_OK) == 0)
    }

    private func makedev(_ major: UInt64, _ minor: UInt64) -> dev_t { dev_t(major << 8 | minor) }

    @Test("read-only directories and a file named like the tombstones are deleted")
    func readOnly() throws {
        try write("ada", to: "\(data)/closed/deeper/file")
        #expect(chmod("\(data)/closed/deeper", 0o500) == 0 && chmod("\(data)/closed", 0o000) == 0)
        try write("ada", to: "\(data)/\(DeclaredPath.tombstones)")
        succeed(chmod(data, 0o500))
        _ = try DeclaredPath(data).remove()
        #expect(names(data).isEmpty)
    }

    @Test("a wide tree and a deep tree are deleted with few descriptors")
    func many() throws {
        for number in 0..<5_000 { close(open("\(data)/\(number)", O_CREAT | O_WRONLY, 0o600)) }
        // Deeper than the longest path.
        var current = open(data, O_RDONLY | O_DIRECTORY)
        for _ in 0..<5_000 {
            succeed(mkdirat(current, "deep", 0o700))
            let next = openat(current, "deep", O_RDONLY | O_DIRECTORY)
            close(openat(current, "f", O_CREAT | O_WRONLY, 0o600))
            close(openat(current, "g", O_CREAT | O_WRONLY, 0o600))
            close(current)
            current = next
        }
        close(current)
        let counts = Counts()
        let data = data
        let removed = try DeclaredPath(data) { checkpoint in
            guard checkpoint == .unlinked else { return }
            counts.unlinked += 1
            guard counts.unlinked % 1000 == 0 else { return }
            let open = (0..<1024).count { descriptor in
                let target = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(descriptor)")
                return target?.hasPrefix(data) == true
            }
            counts.open = max(counts.open, open)
        }.remove()
        #expect(removed.files == 15_000)
        #expect(names(data).isEmpty)
        #expect((1...8).contains(counts.open), "descriptors in the tree at a time")
    }

    @Test("files that are written or created during the deletion are deleted")
    func writtenMeanwhile() throws {
        try write("ada", to: "\(data)/profile/log")
        let writer = open("\(data)/profile/log", O_WRONLY | O_APPEND)
        let profile = open("\(data)/profile", O_RDONLY | O_DIRECTORY)
        defer { for descriptor in [writer, profile] { close(descriptor) } }
        let data = data
        _ = try DeclaredPath(data) { checkpoint in
            guard checkpoint == .buried else { return }
            _ = Glibc.write(writer, "ada", 3)
            close(openat(profile, "late", O_CREAT | O_WRONLY, 0o600))
            close(open("\(data)/newer", O_CREAT | O_WRONLY, 0o600))
            unlink("\(data)/newer")
        }.remove()
        #expect(names(data).isEmpty)
    }

    @Test("endless writing is an error that says so")
    func writtenWithoutEnd() throws {
        let data = data
        let error = #expect(throws: UserDataError.self) {
            _ = try DeclaredPath(data) { checkpoint in
                if checkpoint == .swept { close(open("\(data)/again", O_CREAT | O_WRONLY, 0o600)) }
            }.remove()
        }
        #expect(error?.reason.contains("still writes") == true)
    }

    @Test("endless filling of the tombstones does not prolong the deletion", arguments: [true, false])
    func filledWithoutEnd(withDirectories: Bool) throws {
        try write("ada", to: "\(data)/profile/file")
        let counts = Counts()
        let data = data
        let error = #expect(throws: UserDataError.self) {
            _ = try DeclaredPath(data) { checkpoint in
                guard checkpoint == .unlinked, counts.unlinked < 100_000 else { return }
                counts.unlinked += 1
                let place = "\(data)/\(DeclaredPath.tombstones)/\(counts.unlinked)"
                if withDirectories { mkdir(place, 0o700) }
                close(open(withDirectories ? "\(place)/file" : place, O_CREAT | O_WRONLY, 0o600))
            }.remove()
        }
        #expect(error?.reason.contains("still writes") == true)
        #expect(counts.unlinked < 100_000)
        // The writer has ended.
        _ = try DeclaredPath(data).remove()
        #expect(names(data).isEmpty)
    }

    @Test("another user's data is refused", .enabled(if: geteuid() == 0, "only root makes files of others"))
    func others() throws {
        try write("grace", to: "\(data)/file")
        succeed(chown(data, 65534, 65534))
        let error = #expect(throws: UserDataError.self) { try DeclaredPath(data).remove() }
        #expect(error?.reason.contains("65534") == true)
        #expect(names(data) == ["file"])
    }

    @Test(
        "no mount is crossed, whether of another file system or of the same",
        .enabled(if: Mounts.areAllowed, "this user may not mount")
    )
    func mounts() async throws {
        try write("grace", to: "\(outside)/file")
        try write("ada", to: "\(data)/profile/file")
        for name in ["profile/bind", "profile/tmpfs"] { succeed(mkdir("\(data)/\(name)", 0o700)) }
        succeed(mount(outside, "\(data)/profile/bind", nil, UInt(MS_BIND), nil))
        defer { umount2("\(data)/profile/bind", Int32(MNT_DETACH)) }
        succeed(mount("none", "\(data)/profile/tmpfs", "tmpfs", 0, nil))
        try write("grace", to: "\(data)/profile/tmpfs/file")
        let error = #expect(throws: UserDataError.self) { try DeclaredPath(data).remove() }
        #expect(error?.code == EBUSY && error?.remedy.contains("Unmount") == true)
        #expect(names(outside) == ["file"])
        // The error names the mount at its present path, below the tombstones, so that people find it.
        let places = try FileManager.default.subpathsOfDirectory(atPath: data)
        let tmpfs = try #require(places.first { $0.hasSuffix("/tmpfs") })
        #expect(names("\(data)/\(tmpfs)") == ["file"])
        for name in ["tmpfs", "bind"] {
            let place = try #require(places.first { $0.hasSuffix("/\(name)") })
            // A process that another test starts holds this process's directories until it calls exec.
            try await eventually("it is unmounted") { umount2("\(data)/\(place)", 0) == 0 }
        }
        _ = try DeclaredPath(data).remove()
        #expect(names(data).isEmpty && names(outside) == ["file"])
    }

    @Test("a path that is a mount point is refused", .enabled(if: Mounts.areAllowed, "this user may not mount"))
    func mountPoint() throws {
        try write("grace", to: "\(outside)/file")
        succeed(mount(outside, data, nil, UInt(MS_BIND), nil))
        defer { umount2(data, Int32(MNT_DETACH)) }
        #expect(throws: UserDataError.self) { try DeclaredPath(data).remove() }
        #expect(names(outside) == ["file"])
    }
}

/// Unchecked: the removal calls it on the test's own thread.
private final class Counts: @unchecked Sendable {
    var unlinked = 0
    var open = 0
}

enum Mounts {
    static let areAllowed: Bool = {
        guard geteuid() == 0, let directory = try? TemporaryDirectory("mounts") else { return false }
        guard mount("none", directory.path, "tmpfs", 0, nil) == 0 else { return false }
        return umount2(directory.path, 0) == 0
    }()
}

/// Records an issue if a system call of a test's set-up failed. A function, because `#expect` is slow to compile and
/// there are many calls.
func succeed(_ status: CInt, file: String = #fileID, path: String = #filePath, line: Int = #line) {
    guard status != 0 else { return }
    let location = SourceLocation(fileID: file, filePath: path, line: line, column: 1)
    Issue.record("a call has failed: \(String(cString: strerror(errno)))", sourceLocation: location)
}
