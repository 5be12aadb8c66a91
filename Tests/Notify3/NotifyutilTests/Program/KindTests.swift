import NotifyCenterTestKit
import Testing

@Suite("Kinds of registration, with the real program")
struct KindTests {
    private static let kinds = [["-port"], ["-file"], ["-dispatch"], ["-check"], ["-plain"], []]

    @Test("each kind reports and counts the posts of the same process")
    func ownPosts() async throws {
        let bus = try await ProgramBus()
        // At the same time, because each process has its pauses.
        let programs = try Self.kinds.enumerated().map { number, kind in
            let (a, b) = ("a\(number)", "b\(number)")
            return try bus.start(kind + ["-z", "400", "-2", a, "-1", b, "-p", a, "-p", b, "-p", "c", "-p", a])
        }
        for (number, program) in programs.enumerated() {
            #expect(await program.exitStatus() == 0)
            #expect(program.lines == ["a\(number)", "b\(number)", "a\(number)"], "\(Self.kinds[number])")
            #expect(program.errorText == "")
        }
    }

    @Test("each kind reports posts of other processes")
    func othersPosts() async throws {
        let bus = try await ProgramBus()
        let watchers = try Self.kinds.map { try bus.start(["--ready"] + $0 + ["-2", "a"]) }
        try await eventually("all watch") { watchers.allSatisfy { $0.errorText == "ready" } }
        for count in 1...2 {
            #expect(try await bus.run("-p", "a").status == 0)
            try await eventually("each reports the post") { watchers.allSatisfy { $0.lines.count == count } }
        }
        for watcher in watchers {
            #expect(await watcher.exitStatus() == 0)
            #expect(watcher.lines == ["a", "a"])
        }
    }

    @Test("the signal kind prints the signal, then the names that were posted")
    func signals() async throws {
        let bus = try await ProgramBus()
        let watcher = try await bus.startReady("-signal", "10", "-1", "a", "-1", "b", "-sig", "12", "-1", "c")
        // A pending signal hides a second signal of the same number.
        for (name, lines) in [("b", 2), ("c", 4), ("a", 6)] {
            #expect(try await bus.run("-p", name).status == 0)
            try await eventually("\(name) is reported") { watcher.lines.count == lines }
        }
        #expect(watcher.lines == ["SIGNAL 10", "b", "SIGNAL 12", "c", "SIGNAL 10", "a"])
        #expect(await watcher.exitStatus() == 0)
    }

    @Test("the default signal is 1, and -q leaves its line out")
    func firstSignal() async throws {
        let bus = try await ProgramBus()
        #expect(try await bus.run("-signal", "-1", "a", "-p", "a").lines == ["SIGNAL 1", "a"])
        let quiet = try await bus.run("-q", "-signal", "-1", "a", "-p", "a")
        #expect(quiet.lines.isEmpty && quiet.status == 0)
    }

    @Test("signal 99 is refused")
    func noSignal() async throws {
        let result = try await ProgramBus().run("-signal", "99", "-1", "a")
        #expect(result.lines == ["a: Failed with code 5"] && result.status == 70)
        #expect(result.errors.contains("no such signal"))
    }

    @Test("several kinds of one name report each post")
    func mixed() async throws {
        let result = try await ProgramBus().run(
            "-1 a -file -1 a -dispatch -1 a -check -1 a -signal -1 a -p a".split(separator: " ").map(String.init)
        )
        #expect(result.lines.sorted() == ["SIGNAL 1", "a", "a", "a", "a", "a"] && result.status == 0)
    }

    @Test("a new registration works after a descriptor was closed with its last one")
    func newDescriptor() async throws {
        let bus = try await ProgramBus()
        for kind in ["-port", "-file"] {
            let commands = "-1 a -1 b -p a -p b -1 c -1 d -p d -p c".split(separator: " ").map(String.init)
            let result = try await bus.run([kind] + commands)
            #expect(result.lines == ["a", "b", "d", "c"] && result.status == 0)
        }
    }

    @Test("events are reported during a pause, and later commands follow")
    func pauses() async throws {
        let bus = try await ProgramBus()
        let child = try bus.start("-1", "a", "-p", "a", "-z", "600000", "-p", "x", "-p", "y")
        try await child.line { $0 == "a" }
        #expect(child.isRunning)
    }
}
