import Glibc
import NotifyCenterTestKit
import Testing

@testable import Basics

// Rules, a.13
@Suite struct PathTests {
    private let watcher: PathWatcher
    private let changes = SharedLines()
    private let directory: TemporaryDirectory

    init() async throws {
        let changes = changes
        watcher = try await freeWatcher { ids in for id in ids { changes.append("\(id)") } }
        directory = try TemporaryDirectory("paths")
    }

    private func monitor(_ id: UInt64, _ path: String) {
        #expect(watcher.addAndWait(id, FilePath(path), .all) == .watched)
    }

    private func path(_ name: String) -> String { "\(directory.path)/\(name)" }

    private func write(_ name: String, _ text: String = "x") throws {
        let file = open(path(name), O_WRONLY | O_CREAT | O_APPEND, 0o644)
        #expect(Glibc.write(file, text, text.utf8.count) == text.utf8.count)
        close(file)
    }

    private func count(_ token: UInt64) -> Int { changes.lines.count { $0 == "\(token)" } }

    /// Runs `body`, and waits until the token is notified.
    private func expectChange(_ token: UInt64, _ what: Comment, _ body: () throws -> Void) async throws {
        let before = count(token)
        try body()
        try await eventually("\(what)") { count(token) > before }
    }

    @Test func aFileIsFollowedThroughItsLife() async throws {
        monitor(2, path("f"))
        try await expectChange(2, "created") { try write("f") }
        try await expectChange(2, "written") { try write("f") }
        try await expectChange(2, "mode changed") { chmod(path("f"), 0o600) }
        try await expectChange(2, "moved away") { Glibc.rename(path("f"), path("g")) }
        try await expectChange(2, "moved back") { Glibc.rename(path("g"), path("f")) }
        try await expectChange(2, "replaced") {
            try write("new", "another")
            Glibc.rename(path("new"), path("f"))
        }
        try await expectChange(2, "written again") { try write("f") }
        try await expectChange(2, "deleted") { unlink(path("f")) }
        try await expectChange(2, "created again") { try write("f") }
    }

    @Test func linksAreFollowedAndTheirTargets() async throws {
        mkdir(path("d"), 0o755)
        try write("d/one")
        try write("two")
        symlink("d/one", path("l"))
        monitor(2, path("l"))
        try await expectChange(2, "target written") { try write("d/one") }
        try await expectChange(2, "link replaced") {
            symlink(path("two"), path("m"))
            Glibc.rename(path("m"), path("l"))
        }
        try await expectChange(2, "new target written") { try write("two") }
        try await expectChange(2, "target deleted") { unlink(path("two")) }
        try await expectChange(2, "target created") { try write("two") }
    }

    // The limits of one process leave watches to other processes of its user.
    @Test func tooManyPathsAndWatchesAreRefused() async throws {
        let outcomes = (UInt64(1)...1024).map { watcher.addAndWait($0, FilePath(path("f")), .all) }
        #expect(outcomes.allSatisfy { $0 == .watched })
        guard case .impossible = watcher.addAndWait(1025, FilePath(path("f")), .all) else {
            Issue.record("1025 paths are watched")
            return
        }
        for id in UInt64(1)...1024 { watcher.remove(id) }
        #expect(watcher.addAndWait(1025, FilePath(path("f")), .all) == .watched)
        // In deep directories, each path has as many watches as parts.
        var failed = false
        for index in 0..<90 where !failed {
            var directory = path("top\(index)")
            for _ in 0..<100 {
                #expect(mkdir(directory, 0o700) == 0)
                directory += "/d"
            }
            if case .impossible = watcher.addAndWait(UInt64(2000 + index), FilePath(directory), .all) { failed = true }
        }
        #expect(failed)
        #expect(watcher.figures.watches <= 8192)
    }
}
