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
        for path in [data, outside] { makeDirectory(path) }
    }

    @Test("a directory is emptied of files of every kind and keeps its mode")
    func empties() throws {
        for name in ["profile/Cookies", ".hidden"] { try writeFile("ada", to: "\(data)/\(name)") }
        succeed(chmod(data, 0o750))
        #expect(try DeclaredPath(data).remove().files == 2)
        #expect(names(in: data).isEmpty)
        var status = stat()
        #expect(stat(data, &status) == 0 && status.st_mode & 0o7777 == 0o750)
        #expect(try DeclaredPath(data).remove().files == 0)
        for name in ["closed/deeper/file", DeclaredPath.tombstones] { try writeFile("ada", to: "\(data)/\(name)") }
        succeed(chmod("\(data)/closed/deeper", 0o500))
        succeed(chmod("\(data)/closed", 0))
        succeed(mkfifo("\(data)/pipe", 0o600))
        if geteuid() == 0 { succeed(mknod("\(data)/null", S_IFCHR | 0o600, makedev(1, 3))) }
        succeed(chmod(data, 0o500))
        _ = try DeclaredPath(data).remove()
        #expect(names(in: data).isEmpty && access("/dev/null", W_OK) == 0)
    }

    @Test("a declared file is deleted, whatever its name, and a missing path is no error")
    func file() throws {
        try writeFile("ada", to: "\(data)/recent.xbel")
        #expect(try DeclaredPath("\(data)/recent.xbel").remove().bytes == 3)
        #expect(names(in: data).isEmpty)
        #expect(try DeclaredPath("\(data)/recent.xbel").remove().files == 0)
        #expect(try DeclaredPath("\(directory.path)/no/such/place").remove().files == 0)
        for name in ["\u{301}cache/file", "file"] { try writeFile("ada", to: "\(data)/\(name)") }
        _ = try DeclaredPath("\(data)/\u{301}cache").remove()
        #expect(names(in: "\(data)/\u{301}cache").isEmpty && names(in: data).count == 2)
    }

    @Test("links are deleted without their targets, and hard links without their content")
    func links() throws {
        try writeFile("grace", to: "\(outside)/file")
        try writeFile("grace", to: "\(outside)/directory/file")
        succeed(symlink("\(outside)/file", "\(data)/link"))
        succeed(symlink("\(outside)/directory", "\(data)/directory"))
        succeed(symlink("/", "\(data)/root"))
        succeed(link("\(outside)/file", "\(data)/second"))
        _ = try DeclaredPath(data).remove()
        #expect(names(in: data).isEmpty)
        #expect(try String(contentsOfFile: "\(outside)/file", encoding: .utf8) == "grace")
        #expect(names(in: "\(outside)/directory") == ["file"])
    }

    @Test("a path that is or leads through a link is refused, and the target stays")
    func linkInPath() throws {
        for name in ["file", "profile/file"] { try writeFile("ada", to: "\(outside)/\(name)") }
        succeed(symlink(outside, "\(directory.path)/link"))
        #expect(throws: UserDataError.self) { try DeclaredPath("\(directory.path)/link/profile").remove() }
        #expect(names(in: "\(outside)/profile") == ["file"])
        let error = #expect(throws: UserDataError.self) { try DeclaredPath("\(directory.path)/link").remove() }
        #expect(error?.reason.contains("symbolic link") == true && error?.remedy.contains("realpath") == true)
        #expect(names(in: outside) == ["file", "profile"] && access("\(directory.path)/link", F_OK) == 0)
    }

    @Test("a directory or file that replaces the deleted one is deleted too")
    func exchanged() throws {
        try writeFile("ada", to: "\(data)/file")
        let counts = Counts()
        let (data, old) = (data, "\(directory.path)/old")
        let removed = try DeclaredPath(data) { checkpoint in
            guard checkpoint == .buried else { return }
            counts.calls += 1
            guard counts.calls == 1 else { return }
            succeed(rename(data, old))
            makeDirectory(data)
            close(open("\(data)/newer", O_CREAT | O_WRONLY, 0o600))
        }.remove()
        #expect(removed.files == 2)
        #expect(names(in: data).isEmpty && names(in: old).isEmpty)
        try writeFile("ada", to: "\(data)/recent")
        let again = try DeclaredPath("\(data)/recent") { checkpoint in
            counts.calls += 1
            if checkpoint == .unlinked, counts.calls < 6 { close(open("\(data)/recent", O_CREAT | O_WRONLY, 0o600)) }
        }.remove()
        #expect(again.files > 1)
        #expect(names(in: data).isEmpty)
    }

    enum Endless: CaseIterable { case written, replaced, tombstonesWithFiles, tombstonesWithDirectories }

    @Test("a directory or tombstones that are written to without end are an error", arguments: Endless.allCases)
    func writtenWithoutEnd(way: Endless) throws {
        try writeFile("ada", to: "\(data)/profile/file")
        let counts = Counts()
        let (data, place) = (data, directory.path)
        let error = #expect(throws: UserDataError.self) {
            _ = try DeclaredPath(data) { checkpoint in
                let isInTombstones = way == .tombstonesWithFiles || way == .tombstonesWithDirectories
                guard checkpoint == (isInTombstones ? .unlinked : .swept), counts.calls < 100_000 else { return }
                counts.calls += 1
                let tombstone = "\(data)/\(DeclaredPath.tombstones)/\(counts.calls)"
                switch way {
                case .written: close(open("\(data)/again", O_CREAT | O_WRONLY, 0o600))
                case .replaced:
                    succeed(rename(data, "\(place)/\(counts.calls)"))
                    makeDirectory(data)
                case .tombstonesWithFiles: close(open(tombstone, O_CREAT | O_WRONLY, 0o600))
                case .tombstonesWithDirectories:
                    mkdir(tombstone, 0o700)
                    close(open("\(tombstone)/file", O_CREAT | O_WRONLY, 0o600))
                }
            }.remove()
        }
        #expect(error?.reason.contains("still writes") == true && counts.calls < 100_000)
        // The writer has ended.
        _ = try DeclaredPath(data).remove()
        #expect(names(in: data).isEmpty)
    }

    private func makedev(_ major: UInt64, _ minor: UInt64) -> dev_t { dev_t(major << 8 | minor) }

    @Test("files that are written or created during the deletion are deleted")
    func writtenMeanwhile() throws {
        try writeFile("ada", to: "\(data)/profile/log")
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
        #expect(names(in: data).isEmpty)
    }

    @Test("another user's data is refused", .needsRoot)
    func others() throws {
        try writeFile("grace", to: "\(data)/file")
        succeed(chown(data, 65534, 65534))
        let error = #expect(throws: UserDataError.self) { try DeclaredPath(data).remove() }
        #expect(error?.reason.contains("65534") == true)
        #expect(names(in: data) == ["file"])
    }

    @Test("no mount is crossed, and a path that is a mount point is refused", .needsMounts)
    func mounts() async throws {
        try writeFile("grace", to: "\(outside)/file")
        succeed(mount(outside, data, nil, UInt(MS_BIND), nil))
        #expect(throws: UserDataError.self) { try DeclaredPath(data).remove() }
        succeed(umount2(data, Int32(MNT_DETACH)))
        #expect(names(in: outside) == ["file"])
        try writeFile("ada", to: "\(data)/profile/file")
        for name in ["profile/bind", "profile/tmpfs"] { makeDirectory("\(data)/\(name)") }
        succeed(mount(outside, "\(data)/profile/bind", nil, UInt(MS_BIND), nil))
        defer { umount2("\(data)/profile/bind", Int32(MNT_DETACH)) }
        succeed(mount("none", "\(data)/profile/tmpfs", "tmpfs", 0, nil))
        try writeFile("grace", to: "\(data)/profile/tmpfs/file")
        let error = #expect(throws: UserDataError.self) { try DeclaredPath(data).remove() }
        #expect(error?.code == EBUSY && error?.remedy.contains("Unmount") == true)
        #expect(names(in: outside) == ["file"])
        // The error names the mount at its present path, below the tombstones, so that administrators find it.
        let places = try FileManager.default.subpathsOfDirectory(atPath: data)
        let tmpfs = try #require(places.first { $0.hasSuffix("/tmpfs") })
        #expect(names(in: "\(data)/\(tmpfs)") == ["file"])
        for name in ["tmpfs", "bind"] {
            let place = try #require(places.first { $0.hasSuffix("/\(name)") })
            // A child that another test forks keeps the mount busy until it calls exec.
            try await eventually("the mount is gone") { umount2("\(data)/\(place)", 0) == 0 }
        }
        _ = try DeclaredPath(data).remove()
        #expect(names(in: data).isEmpty && names(in: outside) == ["file"])
    }
}
