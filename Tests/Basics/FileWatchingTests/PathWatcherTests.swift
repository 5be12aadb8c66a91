import Dispatch
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Synchronization
import Testing

@testable import Basics

@Suite struct PathWatcherTests {
    /// Otherwise removed paths would accumulate behind a slow path.
    @Test func aRemovedPathDoesNotWaitForItsTurn() async throws {
        let watcher = try await freeWatcher()
        let (begun, goOn) = (SharedLines(), DispatchSemaphore(value: 0))
        watcher.add(1, .root, .all) { _ in
            begun.append("busy")
            goOn.wait()
        }
        defer { goOn.signal() }
        try await eventually("the thread is busy") { !begun.lines.isEmpty }
        let ended = SharedLines()
        watcher.add(2, .root, .all) { _ in ended.append("2") }
        watcher.add(3, .root, .all) { _ in ended.append("3") }
        watcher.remove(2)
        #expect(ended.lines == ["2"])
        // The caller does not wait for the slow path.
        #expect(watcher.figures.paths == 1)
        goOn.signal()
        try await eventually { watcher.figures.paths == 2 }
        try await eventually { ended.lines.count == 2 }
        #expect(ended.lines == ["2", "3"])
    }

    @Test(.enabled(if: SilentFileSystem.isAllowed, "this user may not mount a file system by /dev/fuse"))
    func aCallerWaitsForASilentFileSystemNoLongerThanItsPatience() async throws {
        let watcher = try await freeWatcher(patience: .milliseconds(200))
        let silent = try #require(SilentFileSystem())
        let path = FilePath("\(silent.directory.path)/directory/file")
        let outcome = await onThread { watcher.addAndWait(1, path, .all) }
        guard case .impossible(let reason) = outcome else {
            Issue.record("\(outcome)")
            return
        }
        #expect(reason.contains("does not respond"))
        // Other paths wait behind the silent path, and are watched when its lookup fails.
        let watched = SharedLines()
        watcher.add(2, .root, .all) { watched.append("\($0)") }
        #expect(watched.lines.isEmpty)
        silent.end()
        try await eventually("the other path is watched", within: .seconds(60)) { watched.lines == ["watched"] }
        #expect(watcher.figures.paths == 1, "nothing is left of the path that was given up")
    }
}

/// A file system whose server reads no request: a lookup in it waits until ``end()``.
private final class SilentFileSystem: Sendable {
    static let isAllowed: Bool = {
        guard let system = SilentFileSystem() else { return false }
        system.end()
        return true
    }()

    let directory: TemporaryDirectory
    private let device: Locked<CInt>

    init?() {
        guard let directory = try? TemporaryDirectory("silent") else { return nil }
        let device = open("/dev/fuse", O_RDWR | O_CLOEXEC)
        guard device >= 0 else { return nil }
        let options = "fd=\(device),rootmode=40000,user_id=\(geteuid()),group_id=\(getegid())"
        guard mount("silent", directory.path, "fuse", 0, options) == 0 else {
            close(device)
            return nil
        }
        self.directory = directory
        self.device = Locked(device)
    }

    /// Ends the server, so that every request fails.
    func end() {
        let device = device.withLock { device in
            defer { device = -1 }
            return device
        }
        guard device >= 0 else { return }
        close(device)
        umount2(directory.path, CInt(MNT_DETACH))
    }

    deinit { end() }
}

/// Makes a watcher, as soon as an inotify instance is free: other tests may use all of the user's for a moment.
func freeWatcher(
    patience: Duration = .seconds(20),
    changed: @escaping @Sendable ([UInt64]) -> Void = { _ in }
) async throws -> PathWatcher {
    var made: PathWatcher?
    try await eventually("an inotify instance is free") {
        made = try? PathWatcher(patience: patience, changed: changed)
        return made != nil
    }
    return try #require(made)
}

final class SharedLines: Sendable {
    private let state = Locked<[String]>([])
    var lines: [String] { state.withLock { $0 } }
    func append(_ line: String) { state.withLock { $0.append(line) } }
}
