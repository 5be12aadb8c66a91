import DBusTransport
import Dispatch
import NotifyCenterTestKit
import Synchronization
import Testing

@testable import FileWatching

@Suite struct PathWatcherTests {
    /// Otherwise paths would pile up behind a slow path.
    @Test func aRemovedPathDoesNotWaitForItsTurn() async throws {
        // The buses of other tests may use all of the user's inotify instances for a moment.
        var made: PathWatcher?
        try await eventually("an inotify instance is free") {
            made = try? PathWatcher { _ in }
            return made != nil
        }
        let watcher = try #require(made)
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
}

/// Lines that several threads write.
final class SharedLines: Sendable {
    private let state = Locked<[String]>([])
    var lines: [String] { state.withLock { $0 } }
    func append(_ line: String) { state.withLock { $0.append(line) } }
}
