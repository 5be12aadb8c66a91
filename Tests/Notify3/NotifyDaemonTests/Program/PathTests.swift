import DBusTransport
import Foundation
import NotifyCenter
import NotifyCenterTestKit
import NotifydProtocol
import Testing

// Rules, a.13
@Suite struct PathTests {
    private let daemon: Daemon
    private let client: Client
    private let directory: TemporaryDirectory

    init() async throws {
        daemon = try await Daemon()
        client = try Client(daemon.bus)
        directory = try TemporaryDirectory("paths")
    }

    private func path(_ name: String) -> String { "\(directory.path)/\(name)" }

    private func write(_ name: String, _ text: String = "x") throws {
        let file = open(path(name), O_WRONLY | O_CREAT | O_APPEND, 0o644)
        #expect(Glibc.write(file, text, text.utf8.count) == text.utf8.count)
        close(file)
    }

    private func count(_ token: Int32) -> Int { client.signals.count { $0 == "Changed \(token)" } }

    /// Does something, and waits until the token is notified.
    private func expectChange(_ token: Int32, _ what: Comment, _ body: () throws -> Void) async throws {
        let before = count(token)
        try body()
        try await eventually("\(what)") { count(token) > before }
    }

    private static let (delete, write, attrib, rename, create) = (
        UInt32(1), UInt32(2), UInt32(8), UInt32(0x20), UInt32(0x80)
    )

    @Test func aFileIsFollowedThroughItsLife() async throws {
        try await client.monitor(2, path("f"))
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

    @Test func directoriesThatAppearAreFollowed() async throws {
        try await client.monitor(2, path("a/b/f"), flags: Self.create | Self.write)
        mkdir(path("a"), 0o755)
        mkdir(path("a/b"), 0o755)
        try await expectChange(2, "created") { try write("a/b/f") }
        try await expectChange(2, "another directory in the place") {
            mkdir(path("c"), 0o755)
            mkdir(path("c/b"), 0o755)
            try write("c/b/f")
            Glibc.rename(path("a"), path("old"))
            Glibc.rename(path("c"), path("a"))
        }
        try await expectChange(2, "written there") { try write("a/b/f") }
    }

    @Test func linksAreFollowedAndTheirTargets() async throws {
        mkdir(path("d"), 0o755)
        try write("d/one")
        try write("two")
        symlink("d/one", path("l"))
        try await client.monitor(2, path("l"))
        try await expectChange(2, "target written") { try write("d/one") }
        try await expectChange(2, "link replaced") {
            symlink(path("two"), path("m"))
            Glibc.rename(path("m"), path("l"))
        }
        try await expectChange(2, "new target written") { try write("two") }
        try await expectChange(2, "target deleted") { unlink(path("two")) }
        try await expectChange(2, "target created") { try write("two") }
    }

    @Test func onlyWantedEventsAreTold() async throws {
        try write("f")
        try await client.monitor(2, path("f"), flags: Self.attrib)
        try await client.monitor(3, path("f"), flags: Self.write)
        try await expectChange(3, "written") { try write("f") }
        #expect(count(2) == 0)
        try await expectChange(2, "mode changed") { chmod(path("f"), 0o600) }
        // Another connection gets none of it.
        let other = try Client(daemon.bus)
        try await other.monitor(3, path("g"))
        try await expectChange(3, "written again") { try write("f") }
        #expect(other.signals.isEmpty)
    }

    @Test func manyEventsAreFewChanges() async throws {
        try await client.monitor(2, path("f"))
        let begin = ContinuousClock.now
        for _ in 0..<20_000 { try write("f") }
        unlink(path("f"))
        try await eventually { count(2) > 0 }
        // A later event shows that the others are over.
        try await client.monitor(3, path("h"))
        try await expectChange(3, "created") { try write("h") }
        // The time that notifyd may need to read the events.
        let periods = (ContinuousClock.now - begin) / .milliseconds(100)
        #expect(Double(count(2)) <= periods + 2)
    }

    @Test func unmonitoringAndLeavingEndTheMonitoring() async throws {
        try await client.monitor(2, path("f"))
        try await client.monitor(3, path("f"), name: "other")
        try await client.monitor(4, path("f"), name: "kept")
        try await client.call(.unmonitor, .int32(2))
        try await client.leave("other")
        try await expectChange(4, "created") { try write("f") }
        #expect(count(2) == 0)
        #expect(count(3) == 0)
    }

    @Test func refusalsSayWhatIsWrong() async throws {
        #expect(await client.refusal { try await client.monitor(2, "relative") } == "InvalidRequest")
        try await client.monitor(2, path("f"))
        #expect(await client.refusal { try await client.monitor(2, path("g")) } == "InvalidRequest")
        #expect(await client.refusal { try await client.monitor(2, path("f")) } == nil)
    }

    @Test func pathsAreReportedToANewNotifyd() async throws {
        client.answers(
            ProcessReport(names: [
                NameReport(name: "n", monitors: [MonitorReport(token: 2, path: path("f"), flags: 0)])
            ])
        )
        daemon.process.kill()
        daemon.process.waitUntilExit()
        let second = try await Daemon(on: daemon.bus, directory: daemon.directory)
        _ = try await client.state("n")
        let other = try Client(daemon.bus)
        // This path comes after it in the queue of paths to watch.
        try await other.monitor(1, path("other"))
        let before = count(2)
        // On a busy machine a report may be late; it counts all the same.
        try await eventually("changed") {
            try write("f")
            return count(2) > before
        }
        withExtendedLifetime(second) {}
    }

    // Rules, a.5
    @Test func theConfigurationsPathsArePostedToAll() async throws {
        let center = DarwinNotifyCenter(connection: client.connection)
        let posts = SharedLines()
        let observation = try await center.observe("com.example.file") { posts.append($0.name.rawValue) }
        try daemon.configure("monitor com.example.file \(path("f"))\nset now-there 1\n")
        daemon.process.send(SIGHUP)
        try await eventually("read again") { try await client.state("now-there") == 1 }
        // The watch is set on another thread; a change that comes too early is seen with the next.
        try await eventually("posted") {
            try write("f")
            return !posts.lines.isEmpty
        }
        withExtendedLifetime(observation) {}
    }
}
