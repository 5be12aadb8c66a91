import Foundation
import Glibc
import NotifyCenterTestKit
import Testing

import func NotifyCenterTestKit.eventually

@testable import DeviceConfiguration

extension ManagedConfigurationFile.Content {
    fileprivate static func present(mode: Bool) -> Self {
        var configuration = ManagedConfiguration()
        configuration.sharedDeviceMode = mode
        return .present(configuration)
    }
}

@Suite("Updates of the managed configuration")
struct ManagedConfigurationMonitorTests {
    private let shared = ManagedConfigurationFile.Content.present(mode: true)
    private let problem = ManagedConfigurationError(.invalidJSON, "f", "m", remedy: "r")

    private func updates(
        _ readings: Result<ManagedConfigurationFile.Content, ManagedConfigurationError>...
    ) -> [ManagedConfigurationUpdate?] {
        var monitor = ManagedConfigurationMonitor()
        return readings.map { monitor.fileWasRead($0) }
    }

    private func news(
        _ content: ManagedConfigurationFile.Content?,
        _ problem: ManagedConfigurationError? = nil
    ) -> ManagedConfigurationUpdate? { ManagedConfigurationUpdate(inForce: content, problem: problem) }

    @Test("only news is told; an invalid file is, and the last valid content stays in force")
    func onlyNews() {
        let equal = updates(.success(shared), .success(shared), .success(.missing))
        #expect(equal == [news(shared), nil, news(.missing)])
        let told = updates(.failure(problem), .success(shared), .failure(problem), .failure(problem), .success(shared))
        #expect(told == [news(nil, problem), news(shared), news(shared, problem), nil, news(shared)])
    }
}

@Suite("The end of a burst of events")
struct SettlingPeriodTests {
    private let start = ContinuousClock.now

    private func after(_ milliseconds: Int) -> ContinuousClock.Instant { start + .milliseconds(milliseconds) }

    @Test("a burst ends once after a quiet period, and a busy directory is read after eight")
    func quiet() {
        var settling = SettlingPeriod(quiet: .milliseconds(100))
        #expect(settling.deadline == nil)
        for time in [0, 50, 120] { settling.eventOccurred(at: after(time)) }
        #expect(settling.deadline == after(220))
        let answers = [219, 220, 221].map { settling.isOver(at: after($0)) }
        #expect(answers == [false, true, false])
        #expect(settling.deadline == nil)
        settling = SettlingPeriod(quiet: .milliseconds(100))
        var reads: [Int] = []
        for time in stride(from: 0, through: 2000, by: 10) {
            settling.eventOccurred(at: after(time))
            if settling.isOver(at: after(time)) { reads.append(time) }
        }
        #expect(reads == [800, 1610])
    }
}

@Suite("Watching the managed configuration file", .timeLimit(.minutes(5)))
struct ManagedConfigurationWatchTests {
    private typealias Content = ManagedConfigurationFile.Content
    private let shared = Content.present(mode: true)
    private let personal = Content.present(mode: false)
    private let sharedText = #"{"sharedDeviceMode": true}"#
    private let personalText = #"{"sharedDeviceMode": false}"#

    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    private final class Reader {
        private var iterator: AsyncStream<ManagedConfigurationUpdate>.Iterator

        init(_ path: String) async throws {
            let file = ManagedConfigurationFile(path: path)
            iterator = try await onceInotifyIsFree { try file.updates(quietPeriod: .milliseconds(5)) }
                .makeAsyncIterator()
        }

        func next() async throws -> ManagedConfigurationUpdate {
            let read = await iterator.next(isolation: #isolation)
            return try #require(read)
        }

        /// Waits for this content without a problem. A reading during a write may come first.
        func wait(for content: Content) async throws {
            while try await next() != ManagedConfigurationUpdate(inForce: content, problem: nil) {}
        }
    }

    private func reader() async throws -> Reader { try await Reader(directory.file("managed.json")) }

    @Test("creation, permissions, writes, moves, removal and re-creation are noticed")
    func everyWay() async throws {
        mkdir(directory.file("elsewhere"), 0o700)
        let reader = try await reader()
        try await reader.wait(for: .missing)
        try directory.write(sharedText, to: "managed.json")
        try await reader.wait(for: shared)
        // Unsafe permissions, with unchanged content.
        chmod(directory.file("managed.json"), 0o666)
        let update = try await reader.next()
        #expect(update.problem?.code == .insecure && update.inForce == shared)
        chmod(directory.file("managed.json"), 0o644)
        try await reader.wait(for: shared)
        try directory.write(personalText, to: "managed.json")
        try await reader.wait(for: personal)
        try directory.write(sharedText, to: "new.json")
        try directory.rename("new.json", to: "managed.json")
        try await reader.wait(for: shared)
        for other in ["old.json", "elsewhere/managed.json"] {
            try directory.rename("managed.json", to: other)
            try await reader.wait(for: .missing)
            try directory.rename(other, to: "managed.json")
            try await reader.wait(for: shared)
        }
        #expect(unlink(directory.file("managed.json")) == 0)
        try await reader.wait(for: .missing)
        try directory.write(sharedText, to: "managed.json")
        try await reader.wait(for: shared)
        // A writer that keeps the file open.
        let descriptor = open(directory.file("managed.json"), O_WRONLY | O_CLOEXEC)
        defer { close(descriptor) }
        let text = Array((personalText + " ").utf8)
        #expect(pwrite(descriptor, text, text.count, 0) == text.count)
        try await reader.wait(for: personal)
    }

    @Test("directories that are created, moved away and created again are followed")
    func directories() async throws {
        let reader = try await Reader(directory.file("a/b/managed.json"))
        try await reader.wait(for: .missing)
        mkdir(directory.file("a"), 0o700)
        mkdir(directory.file("a/b"), 0o700)
        try directory.write(sharedText, to: "a/b/managed.json")
        try await reader.wait(for: shared)
        try directory.rename("a/b", to: "a/c")
        try await reader.wait(for: .missing)
        mkdir(directory.file("a/b"), 0o700)
        try directory.write(personalText, to: "a/b/managed.json")
        try await reader.wait(for: personal)
        unlink(directory.file("a/b/managed.json"))
        rmdir(directory.file("a/b"))
        try await reader.wait(for: .missing)
        try directory.rename("a/c", to: "a/b")
        try await reader.wait(for: shared)
    }

    @Test("a late reader gets the latest state without all earlier ones")
    func lateReader() async throws {
        try directory.write(sharedText, to: "managed.json")
        let late = try await reader()
        let witness = try await reader()
        try await witness.wait(for: shared)
        let changes = 8
        for change in 1...changes {
            try directory.write(change.isMultiple(of: 2) ? sharedText : personalText, to: "managed.json")
            try await witness.wait(for: change.isMultiple(of: 2) ? shared : personal)
        }
        unlink(directory.file("managed.json"))
        try await witness.wait(for: .missing)
        // The late reader has read nothing so far. Its watch may be behind the other one's, but not by all changes.
        var states = 1
        while try await late.next() != ManagedConfigurationUpdate(inForce: .missing, problem: nil) { states += 1 }
        #expect(states < changes)
    }

    @Test("the watch ends when the reader is released")
    func end() async throws {
        var info = stat()
        #expect(stat(directory.path, &info) == 0)
        // The kernel prints the inode in hexadecimal.
        let inode = "ino:" + String(info.st_ino, radix: 16) + " "
        func isWatched() -> Bool {
            let descriptors = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fdinfo")) ?? []
            return descriptors.contains { name in
                let text = try? String(contentsOfFile: "/proc/self/fdinfo/\(name)", encoding: .utf8)
                return text?.split(separator: "\n").contains { $0.hasPrefix("inotify") && $0.contains(inode) } == true
            }
        }
        do {
            let reader = try await reader()
            try await reader.wait(for: .missing)
            #expect(isWatched(), "the test would see no end")
        }
        try await eventually("the watch has ended") { !isWatched() }
    }
}
