import Foundation
import NotifyCenterTestKit
import Testing

@Suite("list, with the real program")
struct ListTests {
    @Test("a list has all about each registration, and with --names each name once")
    func list() async throws {
        let bus = try await ProgramBus("notify-center", hasNotifyd: true)
        let (a, b) = ("com.example.a", "com.example.b\u{1B}")
        let watcher = try await bus.with("notifyutil").startReady("-w", a, "-check", "-w", b, "-s", a, "9")
        for name in ["com.example.a", "com.example.b"] { try await bus.waitUntilListed(name) }
        var table = try await bus.run("list", "com.example.")
        // On a busy machine a process may not report in time. The list then has what notifyd knows.
        try await eventually("both kinds are in the list") {
            let text = table.lines.joined()
            if text.contains("port"), text.contains("check") { return true }
            table = try await bus.run("list", "com.example.")
            return false
        }
        #expect(table.status == 0)
        let rows = table.lines.map { $0.split(separator: " ").map(String.init) }
        try #require(rows.count == 3)
        #expect(rows[0].first == "PID" && rows[0].last == "STATE")
        #expect(rows[1].first == "\(watcher.identifier)" && rows[1].contains("notifyutil"))
        #expect(rows[1].contains(a) && rows[1].contains("port") && rows[1].last == "9")
        #expect(rows[2].contains(#"com.example.b\u001b"#) && rows[2].contains("check") && rows[2].last == "0")
        // The output is not a terminal, so it has no colour.
        #expect(!table.lines.joined().contains("\u{1B}"))

        let objects = try await bus.run("list", "--json").lines.map(jsonObject)
        let ours = objects.filter { ($0["pid"] as? Int32) == watcher.identifier }
        #expect(ours.map { $0["name"] as? String } == [a, b])
        let program = ChildProcess.built("notifyutil")
        #expect(ours.allSatisfy { $0["program"] as? String == program && $0["uid"] as? UInt32 == getuid() })

        let words = ["-w", "net.b", "-w", "net.a", "-file", "-w", "net.a", "-w", "org"]
        let other = try bus.with("notifyutil").start(words)
        try await bus.waitUntilListed("org")
        #expect(try await bus.run("list", "--names", "net.").lines == ["net.a", "net.b"])
        withExtendedLifetime(other) {}
    }

    @Test("without notifyd, list exits with 69 and the remedy")
    func noNotifyd() async throws {
        let bus = try await ProgramBus("notify-center")
        for arguments in [["list"], ["list", "--no-start"]] {
            let result = try await bus.run(arguments)
            #expect(result.status == 69 && result.lines.isEmpty && result.errors.contains("start notifyd"), "\(result)")
        }
    }
}
