import NotifyCenterTestKit
import Testing

@Suite("Kinds of registration, with the real program")
struct KindTests {
    private func words(_ line: String) -> [String] { line.split(separator: " ").map(String.init) }

    @Test("each kind reports and counts the posts of the same process")
    func ownPosts() async throws {
        let bus = try await ProgramBus()
        let kinds = [["-port"], ["-file"], ["-dispatch"], ["-check"], ["-plain"], []]
        // At the same time, because each process has its pauses.
        let programs = try kinds.enumerated().map { number, kind in
            let (a, b) = ("a\(number)", "b\(number)")
            return try bus.start(kind + ["-z", "400", "-2", a, "-1", b, "-p", a, "-p", b, "-p", "c", "-p", a])
        }
        for (number, program) in programs.enumerated() {
            let outcome = await Outcome(of: program)
            #expect(outcome.lines == ["a\(number)", "b\(number)", "a\(number)"], "\(kinds[number])")
            #expect(outcome.status == 0 && outcome.errors == "")
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

    @Test("one process reports each post of its registrations, and with -q none")
    func oneProcess() async throws {
        let bus = try await ProgramBus()
        let cases: [(line: String, lines: [String])] = [
            // The default signal is 1.
            ("-signal -1 a -p a", ["SIGNAL 1", "a"]), ("-q -signal -1 a -p a", []), ("-q -1 a -p a", []),
            // A new registration works after a descriptor was closed with its last one.
            ("-port -1 a -1 b -p a -p b -1 c -1 d -p d -p c", ["a", "b", "d", "c"]),
            ("-file -1 a -1 b -p a -p b -1 c -1 d -p d -p c", ["a", "b", "d", "c"]),
        ]
        for (line, lines) in cases {
            let result = try await bus.run(words(line))
            #expect(result.lines == lines && result.status == 0, "\(line)")
        }
        // Several kinds of one name
        let mixed = try await bus.run(words("-1 a -file -1 a -dispatch -1 a -check -1 a -signal -1 a -p a"))
        #expect(mixed.lines.sorted() == ["SIGNAL 1", "a", "a", "a", "a", "a"] && mixed.status == 0)
    }

    @Test("events are reported during a pause, and later commands follow")
    func pauses() async throws {
        let bus = try await ProgramBus()
        let child = try bus.start("-1", "a", "-p", "a", "-z", "600000", "-p", "x", "-p", "y")
        try await child.line { $0 == "a" }
        #expect(child.isRunning)
    }
}
