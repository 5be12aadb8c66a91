import DBusTransport
import Foundation
import NotifyCenter
import NotifyCenterTestKit
import Testing

@Suite("The monitor and lists, with the real program")
struct MonitorTests {
    @Test("it reports all posts of both centers with process and program")
    func all() async throws {
        let bus = try await ProgramBus()
        let monitor = try await bus.startReady("--monitor")
        // It keeps running, so that the bus can be asked about it.
        let poster = try bus.start(
            "-w",
            "stay",
            "--distributed",
            "--object",
            "o",
            "--userinfo",
            #"{"k":[1,true]}"#,
            "-p",
            "b c",
            "--darwin",
            "-p",
            "a\u{1B}"
        )
        let name = ProgramBus.program
        let darwin = try await monitor.line { $0.contains(" darwin ") }
        let form = try Regex(
            #"\d+\.\d{3} a\\u001b darwin \#(poster.identifier) \#(NSRegularExpression.escapedPattern(for: name))"#
        )
        #expect(darwin.wholeMatch(of: form) != nil, "\(darwin)")
        let distributed = try #require(monitor.lines.first)
        #expect(
            distributed.hasSuffix(#" b c distributed \#(poster.identifier) \#(name) "o" {"k":[1,true]}"#),
            "\(distributed)"
        )
    }

    @Test("with names it reports only these")
    func names() async throws {
        let bus = try await ProgramBus()
        let monitor = try await bus.startReady("--json", "--monitor", "a", "b")
        #expect(try await bus.run("-z", "0", "-p", "x", "-p", "a", "--distributed", "-p", "x", "-p", "b").status == 0)
        try await eventually { monitor.lines.count == 2 }
        let posts = try monitor.lines.map { line in
            try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
        }
        #expect(posts.map { $0["name"] as? String } == ["a", "b"])
        #expect(posts.map { $0["center"] as? String } == ["darwin", "distributed"])
        #expect(posts.allSatisfy { ($0["sender"] as? String)?.hasPrefix(":") == true })
    }

    @Test("posters that end at once do not delay it, and posts stay in order")
    func briefPosters() async throws {
        let bus = try await ProgramBus()
        let monitor = try await bus.startReady("--json", "--monitor")
        let center = DarwinNotifyCenter(bus: bus.bus.bus)
        for round in 0..<20 {
            #expect(try await bus.run("-p", "brief.\(round)").status == 0)
            try center.post("steady.\(round)")
        }
        try await eventually { monitor.lines.count == 40 }
        let names = monitor.lines.compactMap { $0.firstMatch(of: /"name":"([^"]*)"/)?.1 }.map(String.init)
        #expect(names == (0..<20).flatMap { ["brief.\($0)", "steady.\($0)"] })
        let own = monitor.lines.filter { $0.contains("steady") }
        #expect(own.allSatisfy { $0.contains("\"pid\":\(getpid()),") })
    }

    @Test("after a restart of the bus it asks again who the senders are")
    func restart() async throws {
        let bus = try await ProgramBus()
        let monitor = try await bus.startReady("--monitor")
        let first = DarwinNotifyCenter(bus: bus.bus.bus)
        try await eventually {
            try first.post("a")
            return monitor.lines.contains { $0.contains(" a darwin \(getpid()) ") }
        }
        try bus.bus.restart()
        // Other processes have the same unique names now.
        let watcher = try bus.start(["-w", "x"] + (0..<300).flatMap { _ in ["-p", "b"] })
        try await monitor.line { $0.contains(" b darwin \(watcher.identifier) ") }
        #expect(!monitor.lines.contains { $0.contains(" b darwin \(getpid()) ") })
    }

    @Test("a list has process, program, name, kind and state of each registration")
    func list() async throws {
        let bus = try await ProgramBus(hasNotifyd: true)
        let watcher = try await bus.startReady(
            "-w",
            "com.example.a",
            "-check",
            "-w",
            "com.example.b\u{1B}",
            "-s",
            "com.example.a",
            "9"
        )
        for name in ["com.example.a", "com.example.b"] { try await bus.waitUntilListed(name) }
        var table = try await bus.run("--list", "com.example.")
        // On a busy machine a process may not answer in time; then it is listed with what is known.
        try await eventually("both have told of their kinds") {
            let text = table.lines.joined()
            if text.contains("port"), text.contains("check") { return true }
            table = try await bus.run("--list", "com.example.")
            return false
        }
        #expect(table.status == 0)
        let rows = table.lines.map { $0.split(separator: " ").map(String.init) }
        try #require(rows.count == 3)
        #expect(rows[0].first == "PID" && rows[0].last == "STATE")
        #expect(rows[1].first == "\(watcher.identifier)" && rows[1].contains("notifyutil"))
        #expect(rows[1].contains("com.example.a") && rows[1].contains("port") && rows[1].last == "9")
        #expect(rows[2].contains(#"com.example.b\u001b"#) && rows[2].contains("check") && rows[2].last == "0")
        // Not on a terminal, so without colour.
        #expect(!table.lines.joined().contains("\u{1B}"))

        let json = try await bus.run("--json", "--list")
        let objects = try json.lines.map { line in
            try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
        }
        let ours = objects.filter { ($0["pid"] as? Int32) == watcher.identifier }
        #expect(ours.map { $0["name"] as? String } == ["com.example.a", "com.example.b\u{1B}"])
        #expect(ours.allSatisfy { $0["program"] as? String == ProgramBus.program && $0["uid"] as? UInt32 == getuid() })
    }
}
