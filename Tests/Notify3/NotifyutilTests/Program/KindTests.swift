import NotifyCenterTestKit
import ProgramBus
import Testing

@Suite("Kinds of registration, with the real program")
struct KindTests {
    private static let kinds = [["-port"], ["-file"], ["-dispatch"], ["-check"], ["-plain"], []]

    @Test("each kind reports a post of its own process, and counts", arguments: kinds)
    func ownPosts(kind: [String]) async throws {
        let bus = try await ProgramBus()
        let result = try await bus.run(
            kind + ["-z", "1000", "-2", "a", "-1", "b", "-p", "a", "-p", "b", "-p", "c", "-p", "a"]
        )
        #expect(result.lines == ["a", "b", "a"])
        #expect(result.status == 0)
        #expect(result.errors == "")
    }

    @Test("each kind reports posts of other processes", arguments: kinds)
    func othersPosts(kind: [String]) async throws {
        let bus = try await ProgramBus()
        let watcher = try bus.start(["--ready"] + kind + ["-2", "a"])
        try await eventually { watcher.errorText == "ready" }
        for count in 1...2 {
            #expect(try await bus.run("-p", "a").status == 0)
            try await eventually { watcher.lines.count == count }
        }
        #expect(await watcher.exitStatus() == 0)
        #expect(watcher.lines == ["a", "a"])
    }

    @Test("the signal kind says which signal, then the names that were posted")
    func signals() async throws {
        let bus = try await ProgramBus()
        let watcher = try await bus.startReady("-signal", "10", "-1", "a", "-1", "b", "-sig", "12", "-1", "c")
        // A pending signal hides a second one of the same number.
        for (name, lines) in [("b", 2), ("c", 4), ("a", 6)] {
            #expect(try await bus.run("-p", name).status == 0)
            try await eventually("\(name) is reported") { watcher.lines.count == lines }
        }
        #expect(watcher.lines == ["SIGNAL 10", "b", "SIGNAL 12", "c", "SIGNAL 10", "a"])
        #expect(await watcher.exitStatus() == 0)
    }

    @Test("without a number the signal is 1")
    func firstSignal() async throws {
        let result = try await ProgramBus().run("-signal", "-1", "a", "-p", "a")
        #expect(result.lines == ["SIGNAL 1", "a"])
    }

    @Test("a signal line is no event: -q leaves it out")
    func quietSignal() async throws {
        let result = try await ProgramBus().run("-q", "-signal", "-1", "a", "-p", "a")
        #expect(result.lines.isEmpty && result.status == 0)
    }

    @Test("there is no signal 99")
    func noSignal() async throws {
        let result = try await ProgramBus().run("-signal", "99", "-1", "a")
        #expect(result.lines == ["a: Failed with code 5"])
        #expect(result.status == 70)
        #expect(result.errors.contains("no such signal"))
    }

    @Test("several kinds of one name report each")
    func mixed() async throws {
        let result = try await ProgramBus().run(
            "-1",
            "a",
            "-file",
            "-1",
            "a",
            "-dispatch",
            "-1",
            "a",
            "-check",
            "-1",
            "a",
            "-signal",
            "-1",
            "a",
            "-p",
            "a"
        )
        #expect(result.lines.filter { $0 == "a" }.count == 5)
        #expect(result.lines.filter { $0 == "SIGNAL 1" }.count == 1)
        #expect(result.status == 0)
    }

    @Test(
        "a descriptor that was closed with its last registration is followed by a new one",
        arguments: ["-port", "-file"]
    )
    func newDescriptor(kind: String) async throws {
        let result = try await ProgramBus().run(
            kind,
            "-1",
            "a",
            "-1",
            "b",
            "-p",
            "a",
            "-p",
            "b",
            "-1",
            "c",
            "-1",
            "d",
            "-p",
            "d",
            "-p",
            "c"
        )
        #expect(result.lines == ["a", "b", "d", "c"])
        #expect(result.status == 0)
    }

    @Test("events are reported during a pause, and the commands after it follow")
    func pauses() async throws {
        let bus = try await ProgramBus()
        let child = try bus.start("-1", "a", "-p", "a", "-z", "600000", "-p", "x", "-p", "y")
        try await child.line { $0 == "a" }
        #expect(child.isRunning)
    }
}
