import NotifyCenterTestKit
import Testing

@Suite("States, with the real program and notifyd")
struct NotifyutilStateTests {
    @Test("a state lasts until the last registration ends")
    func idiom() async throws {
        // CF-W4
        let bus = try await ProgramBus(hasNotifyd: true)
        let child = try bus.start("-w", "foo", "-s", "foo", "123", "-g", "foo")
        try await child.line { $0 == "foo 123" }
        #expect(try await bus.run("-g", "foo").lines == ["foo 123"])
        child.kill()
        #expect(await child.exitStatus() != 0)
        #expect(try await bus.run("-s", "bar", "5").status == 0)
        #expect(try await bus.run("-g", "bar").lines == ["bar 0"])
    }

    @Test("-q prints states too; a value that is not a number gives a warning")
    func forms() async throws {
        let bus = try await ProgramBus(hasNotifyd: true)
        let quiet = try await bus.run("-q", "-1", "a", "-s", "a", "-1", "-g", "a", "-p", "a")
        #expect(quiet.lines == ["a 18446744073709551615"])
        let warned = try await bus.run("-1", "b", "-s", "b", "12x", "-g", "b", "-p", "b")
        #expect(warned.lines == ["b 12", "b"] && warned.errors.contains("12x") && warned.status == 0)
    }

    @Test("without notifyd a state fails with 69; the first failure decides the status")
    func noNotifyd() async throws {
        let bus = try await ProgramBus()
        let result = try await bus.run("-g", "a", "-s", "b", "1", "-1", "c", "-p", "c")
        #expect(result.lines == ["a: Failed with code 9", "b: Failed with code 9", "c"])
        #expect(result.errors.contains("could not read the state of a: no notifyd runs on this bus"))
        #expect(result.errors.contains("could not set the state of b: no notifyd runs on this bus"))
        #expect(result.status == 69)
        let first = try await bus.run("-signal", "99", "-w", "a", "-g", "b", "-port", "-1", "c", "-p", "c")
        #expect(first.lines == ["a: Failed with code 5", "b: Failed with code 9", "c"])
        #expect(first.status == 70 && first.errors.contains("no such signal"))
    }

    @Test("notifyd's status is printed, or written to a file")
    func dump() async throws {
        let bus = try await ProgramBus(hasNotifyd: true)
        let watcher = try await bus.startReady("-w", "com.example.dumped")
        // This reads the printed status.
        try await bus.waitUntilListed("com.example.dumped")
        #expect(try await bus.run("--dump").status == 0)
        let written = try await bus.shell(#"f=$(mktemp) && "$N" --dump "$f" && cat "$f"; rm -f "$f""#)
        #expect(written.lines.contains { $0.contains("com.example.dumped") }, "\(written)")
        let unwritable = try await bus.run("--dump", "/nowhere/at/all")
        #expect(unwritable.status == 70 && unwritable.errors.contains("/nowhere/at/all: the file cannot be written"))
        withExtendedLifetime(watcher) {}
    }
}
