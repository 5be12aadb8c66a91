import Basics
import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization
import Testing

@Suite("A directory of users' data")
struct UserDataDirectoryTests {
    private let ada = Account(identifier: "ada-1.tenant", username: "ada")
    private let grace = Account(identifier: "grace-2.tenant", username: "grace")
    private let directory: TemporaryDirectory
    private let data: UserDataDirectory

    init() throws {
        directory = try TemporaryDirectory("user-data-test")
        data = try UserDataDirectory(path: "\(directory.path)/app")
    }

    private var tombstones: [String] {
        get throws { try FileManager.default.contentsOfDirectory(atPath: "\(data.path)/tombstones") }
    }

    private func expectGone(_ path: String, _ location: SourceLocation = #_sourceLocation) throws {
        #expect(try !exists(path) && tombstones.isEmpty, sourceLocation: location)
    }

    private func write(_ text: String, _ path: String) throws {
        try text.write(toFile: path, atomically: false, encoding: .utf8)
    }

    private func exists(_ path: String) -> Bool {
        var status = stat()
        return lstat(path, &status) == 0
    }

    // MARK: Names

    @Test("a user's directory is private, reusable and free of other users' files")
    func opened() throws {
        #expect(try !data.contains(ada))
        let path = try data.open(for: ada)
        for _ in 0..<2 {
            #expect(try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int == 0o700)
            #expect(try data.contains(ada))
            chmod(path, 0o755)
            #expect(try data.open(for: ada) == path)
        }
        #expect(try data.open(for: grace) != path)
    }

    @Test("unusual identifiers get separate directories in the base, or none if too long")
    func oddIdentifiers() async throws {
        let identifiers = [
            "", ".", "..", "../..", "/etc", "a/b", "a_2fb", "A", "a", "_41", "_", "ä", "a\u{308}", "\u{E4}", "a b",
            "a\n", "a\0b", "-rf", "~", "users", "a.b", ".a", String(repeating: "x", count: 255),
        ]
        let accounts = identifiers.map { Account(identifier: $0, username: "x") }
        // Swift considers two of them equal; the file system must not.
        func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }
        let paths = try accounts.map { try data.open(for: $0) }
        #expect(Set(paths.map(bytes)).count == Set(identifiers.map(bytes)).count)
        #expect(Set(paths.map { $0.lowercased() }).count == Set(paths).count)
        let parents = paths.map { URL(filePath: $0).deletingLastPathComponent().path }
        #expect(Set(parents) == ["\(data.path)/users"])
        #expect(paths.allSatisfy(exists))
        try await data.remove(accounts)
        #expect(!paths.contains(where: exists))
        #expect(try FileManager.default.contentsOfDirectory(atPath: "\(data.path)/users").isEmpty)
        let long = Account(identifier: String(repeating: "x", count: 256), username: "long")
        let error = #expect(throws: UserDataError.self) { try data.open(for: long) }
        #expect(error?.code == ENAMETOOLONG)
        #expect(try !data.contains(long))
        #expect(try await data.remove([long]).files == 0)
    }

    @Test("a base name that is a path, or a file in its place, is refused with a remedy")
    func oddBase() throws {
        for name in ["", ".", "..", "a/b", "a\0b"] {
            let error = #expect(throws: UserDataError.self, "\(name)") { try UserDataDirectory(name) }
            #expect(error?.code == EINVAL, "\(name)")
        }
        let path = try directory.folder("broken")
        try write("", "\(path)/users")
        let error = #expect(throws: UserDataError.self) { try UserDataDirectory(path: path) }
        #expect(error?.path == "\(path)/users" && error?.code == ENOTDIR && error?.remedy.isEmpty == false)
    }

    // MARK: Removing

    @Test("data of every kind and name is counted and removed; other users' data stays")
    func removed() async throws {
        let path = try data.open(for: ada)
        try FileManager.default.createDirectory(atPath: "\(path)/a/b", withIntermediateDirectories: true)
        try write("12345", "\(path)/one")
        try write("123", "\(path)/a/b/two")
        let folder = open(path, O_RDONLY | O_DIRECTORY)
        defer { close(folder) }
        // Invalid UTF-8, a name of maximum length, and names with special meaning for a shell.
        let names: [[CChar]] = [
            [-1, -2, 0], Array(repeating: 120, count: 255) + [0], [10, 0], [45, 114, 102, 0], [46, 46, 46, 0],
        ]
        for name in names {
            let file = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL, 0o000)
            try #require(file >= 0 && Glibc.write(file, "x", 1) == 1)
            close(file)
        }
        try #require(mkfifo("\(path)/pipe", 0o600) == 0)
        let others = try data.open(for: grace)
        try write("hers", "\(others)/one")
        #expect("\(try await data.remove([ada]))" == "8 files, 13 bytes")
        try expectGone(path)
        #expect(try String(contentsOfFile: "\(others)/one", encoding: .utf8) == "hers")
        #expect(try await data.remove([ada]).files == 0)
    }

    @Test("symbolic links are removed and not followed, at any depth")
    func links() async throws {
        let outside = "\(directory.path)/outside"
        _ = try directory.folder("outside/sub")
        try write("not the user's", "\(outside)/sub/file")
        let path = try data.open(for: ada)
        try FileManager.default.createDirectory(atPath: "\(path)/deep", withIntermediateDirectories: true)
        for (link, target) in [
            ("link", outside), ("deep/link", "../../../../outside/sub"), ("deep/file", "\(outside)/sub/file"),
        ] { #expect(symlink(target, "\(path)/\(link)") == 0) }
        #expect(try await data.remove([ada]).files == 3)
        #expect(symlink(outside, path) == 0)
        let error = #expect(throws: UserDataError.self) { try data.open(for: ada) }
        #expect(error?.path == path)
        #expect(try await data.remove([ada]).files == 1)
        #expect(!exists(path))
        #expect(try String(contentsOfFile: "\(outside)/sub/file", encoding: .utf8) == "not the user's")
    }

    @Test("a tree deeper than the limit of paths is removed with few descriptors")
    func deepTree() async throws {
        let path = try data.open(for: ada)
        var parent = open(path, O_RDONLY | O_DIRECTORY)
        // More levels than a process usually may have descriptors.
        for depth in 0..<3000 {
            try #require(mkdirat(parent, "a long name for a directory", 0o700) == 0)
            let child = openat(parent, "a long name for a directory", O_RDONLY | O_DIRECTORY)
            try #require(child >= 0)
            if depth % 100 == 0 { try #require(fchmod(parent, 0o500) == 0) }
            close(parent)
            parent = child
        }
        close(openat(parent, "bottom", O_WRONLY | O_CREAT, 0o400))
        close(parent)
        // Counted, because the limit of descriptors may be high.
        let seen = Locked((calls: 0, most: 0))
        let remover = try UserDataDirectory(path: data.path) { [base = data.path] _ in
            let isCounted = seen.withLock { seen -> Bool in
                seen.calls += 1
                return seen.calls % 100 == 0
            }
            guard isCounted else { return }
            let names = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []
            let open = names.count { name in
                let target = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(name)")
                return target?.hasPrefix(base) == true
            }
            seen.withLock { $0.most = max($0.most, open) }
        }
        #expect(try await remover.remove([ada]).files == 1)
        #expect(try tombstones.isEmpty)
        let most = seen.withLock { $0.most }
        #expect((1..<16).contains(most), "descriptors in the directory at a time")
    }

    @Test("an open file loses its bytes unless truncation is off", arguments: [true, false])
    func truncation(truncates: Bool) async throws {
        let data = try UserDataDirectory(path: "\(directory.path)/other", truncates: truncates)
        let path = "\(try data.open(for: ada))/file"
        try write("secret", path)
        chmod(path, 0o400)
        let link = "\(directory.path)/link"
        #expect(Glibc.link(path, link) == 0)
        let reader = open(path, O_RDONLY)
        defer { close(reader) }
        try await data.remove([ada])
        var bytes = [UInt8](repeating: 0, count: 16)
        #expect(read(reader, &bytes, 16) == (truncates ? 0 : 6))
        #expect(try String(contentsOfFile: link, encoding: .utf8) == (truncates ? "" : "secret"))
    }

    @Test("two concurrent removals both succeed and leave nothing")
    func atOnce() async throws {
        let path = try data.open(for: ada)
        for number in 0..<300 {
            let folder = "\(path)/\(number)"
            try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
            for name in ["a", "b"] { try write("x", "\(folder)/\(name)") }
        }
        let processes = try (0..<3).map { _ in try remover() }
        async let here = data.remove([ada])
        for process in processes { #expect(await process.exitStatus() == 0, "\(process.lines)") }
        _ = try await here
        try expectGone(path)
    }

    // MARK: Crashes and readers

    private func remover(_ arguments: String...) throws -> ChildProcess {
        try ChildProcess(ChildProcess.built("listener-app"), ["remove", data.path, ada.identifier] + arguments)
    }

    private func fill() throws -> String {
        let path = try data.open(for: ada)
        for folder in ["", "/a", "/a/b"] {
            try FileManager.default.createDirectory(atPath: path + folder, withIntermediateDirectories: true)
            for number in 0..<5 { try write("secret", "\(path)\(folder)/\(number)") }
        }
        return path
    }

    @Test("after a kill readers find nothing, and the next start or process finishes")
    func killed() async throws {
        for point in ["buried", "unlinked", "moved"] {
            let path = try fill()
            #expect(try await remover(point).exitStatus() == 128 + SIGKILL, "\(point)")
            #expect(try !exists(path) && !data.contains(ada) && !tombstones.isEmpty, "\(point)")
            let again = try UserDataDirectory(path: data.path)
            #expect(try tombstones.isEmpty, "\(point)")
            #expect(try await again.remove([ada]).files == 0, "\(point)")
        }
        _ = try fill()
        #expect(try await remover("buried").exitStatus() == 128 + SIGKILL)
        #expect("\(try await data.remove([]))" == "15 files, 90 bytes")
        #expect(try tombstones.isEmpty)
    }

    @Test("another process that lists the directory sees all or nothing")
    func readers() async throws {
        for _ in 0..<2 {
            let path = try data.open(for: ada)
            for number in 0..<500 { try write("x", "\(path)/\(number)") }
            let reader = try ChildProcess(ChildProcess.built("listener-app"), ["list", path])
            try await reader.line { $0 == "500" }
            try await data.remove([ada])
            #expect(await reader.exitStatus() == 0)
            try await reader.line { $0 == "none" }
            #expect(reader.lines == ["500", "none"])
        }
    }

    // MARK: Late writers

    @Test("a late writer fails, and cannot recreate the directory after its check")
    func lateWriter() async throws {
        let generation = try data.generation()
        let path = try data.open(for: ada, in: generation)
        try write("note", "\(path)/note")
        #expect(try data.open(for: ada, in: generation) == path)
        try await data.remove([ada])
        #expect(throws: (any Error).self) { try write("late", "\(path)/late") }
        let error = #expect(throws: UserDataError.self) { try data.open(for: ada, in: generation) }
        #expect(error?.code == ESTALE && !exists(path))
        #expect(try data.open(for: ada, in: data.generation()) == path)
        // A removal by another process also ends the generation.
        let second = try data.generation()
        #expect(try await remover().exitStatus() == 0)
        #expect(throws: UserDataError.self) { try data.open(for: ada, in: second) }
        #expect(try data.contains(ada) == false)
        let (base, identifier, third) = (data.path, ada.identifier, try data.generation())
        let writer = try UserDataDirectory(path: base) { checkpoint in
            guard case .checked = checkpoint else { return }
            // The hook is synchronous, so another process performs the removal.
            let arguments = ["remove", base, identifier]
            #expect((try? ChildProcess(ChildProcess.built("listener-app"), arguments).waitUntilExit()) == 0)
        }
        let late = #expect(throws: UserDataError.self) { try writer.open(for: ada, in: third) }
        #expect(try late?.code == ESTALE && !data.contains(ada))
    }

    // MARK: Failures

    private static let canMount: Bool = {
        let arguments = ["-m", "sh", "-c", "mount -t tmpfs none /mnt"]
        return geteuid() == 0 && (try? ChildProcess("unshare", arguments).waitUntilExit()) == 0
    }()

    @Test(
        "a mounted directory or file is named and stays, and all else is removed",
        .enabled(if: canMount, "the system lets nothing be mounted here"),
        arguments: ["tmpfs", "file"]
    )
    func mounted(kind: String) async throws {
        let path = try fill()
        let (kept, seen) = ("\(directory.path)/kept", "\(directory.path)/seen")
        try write("not the user's", kept)
        let script =
            kind == "file"
            ? "mount --bind '\(kept)' '\(path)/a/0' && \"$@\""
            : "mount -t tmpfs none '\(path)/a' && cp '\(kept)' '\(path)/a/0' && { \"$@\"; s=$?; cp '\(data.path)'/tombstones/*/a/0 '\(seen)'; exit $s; }"
        let probe = [ChildProcess.built("listener-app"), "remove", data.path, ada.identifier]
        let process = try ChildProcess("unshare", ["-m", "sh", "-c", script, "sh"] + probe)
        #expect(await process.exitStatus() == 1)
        let line = try await process.line { _ in true }
        #expect(line.contains(kind == "file" ? "/0: " : "/a: ") && line.hasSuffix("Unmount what is mounted there"))
        #expect(!exists(path))
        #expect(try String(contentsOfFile: kind == "file" ? kept : seen, encoding: .utf8) == "not the user's")
        #expect(try tombstones.count == 1)
        try await data.remove([])
        #expect(try tombstones.isEmpty)
    }

    @Test("other users' files are not used but named with a remedy, and removed later", .needsRoot)
    func permission() async throws {
        let nobody: uid_t = 65_534
        let foreign = try data.open(for: grace)
        #expect(chown(foreign, nobody, nobody) == 0)
        // A directory of another user is not used.
        let error = #expect(throws: UserDataError.self) { try data.open(for: grace) }
        #expect(error?.path == foreign && error?.code == EPERM)
        chmod(directory.path, 0o755)
        let path = try fill()
        let directories = [data.path, "\(data.path)/users", "\(data.path)/tombstones"]
        #expect((directories + [path, "\(path)/0"]).allSatisfy { chown($0, nobody, nobody) == 0 })
        let process = try remover("", "\(nobody)")
        #expect(await process.exitStatus() == 1)
        let line = try await process.line { _ in true }
        #expect(line.contains("could not remove \(data.path)/tombstones/") && line.contains("chown"), "\(line)")
        #expect(line.contains("/a: Permission denied") || line.contains("/a: Operation not permitted"))
        #expect(!exists(path))
        let left = try #require(try tombstones.first)
        // The files directly in the user's directory were removed.
        #expect(try FileManager.default.contentsOfDirectory(atPath: "\(data.path)/tombstones/\(left)") == ["a"])
        #expect(directories.allSatisfy { chown($0, 0, 0) == 0 })
        #expect(try await data.remove([ada]).files == 10)
        #expect(try tombstones.isEmpty)
    }
}
