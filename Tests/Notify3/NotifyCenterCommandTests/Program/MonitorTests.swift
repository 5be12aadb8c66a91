import Basics
import DBus
import Foundation
import NotifyCenter
import NotifyCenterTestKit
import Testing

@Suite("monitor, with the real program")
struct MonitorTests {
    @Test("monitor reports all posts of both centers with process and program")
    func all() async throws {
        let bus = try await ProgramBus("notify-center")
        let monitor = try await bus.startReady("monitor")
        // The poster keeps running, so that the bus can identify it.
        let poster = try bus.with("notifyutil").start("-w", "stay", "-p", "a\u{1B}")
        let darwin = try await monitor.line { $0.contains(" darwin ") }
        let name = ChildProcess.built("notifyutil")
        let form = try Regex(
            #"\d+\.\d{3} a\\u001b darwin \#(poster.identifier) \#(NSRegularExpression.escapedPattern(for: name))"#
        )
        #expect(darwin.wholeMatch(of: form) != nil, "\(darwin)")
        let center = DistributedNotifyCenter(bus: bus.bus.bus)
        try center.post("b c", object: "o", userInfo: ["k": [1, true]])
        try await monitor.line { $0.hasSuffix(#" "o" {"k":[1,true]}"#) && $0.contains(" b c distributed \(getpid()) ") }
    }

    @Test("monitor with names reports only these names")
    func names() async throws {
        let bus = try await ProgramBus("notify-center")
        let monitor = try await bus.startReady("monitor", "--json", "a", "b", "--count", "2")
        for arguments in [["x"], ["a"], ["x", "--distributed"], ["b", "--distributed"]] {
            #expect(try await bus.run(["post"] + arguments).status == 0)
        }
        #expect(await monitor.exitStatus() == 0)
        try await eventually { monitor.lines.count == 2 }
        let posts = try monitor.lines.map(jsonObject)
        #expect(posts.map { $0["name"] as? String } == ["a", "b"])
        #expect(posts.map { $0["center"] as? String } == ["darwin", "distributed"])
        #expect(posts.allSatisfy { ($0["sender"] as? String)?.hasPrefix(":") == true })
    }

    @Test("posters that end at once do not delay monitor, and posts stay in order")
    func briefPosters() async throws {
        let bus = try await ProgramBus("notify-center")
        let monitor = try await bus.startReady("monitor", "--json")
        let center = DarwinNotifyCenter(bus: bus.bus.bus)
        for round in 0..<10 {
            #expect(try await bus.run("post", "brief.\(round)").status == 0)
            try center.post("steady.\(round)")
        }
        try await eventually { monitor.lines.count == 20 }
        let names = monitor.lines.compactMap { $0.firstMatch(of: /"name":"([^"]*)"/)?.1 }.map(String.init)
        #expect(names == (0..<10).flatMap { ["brief.\($0)", "steady.\($0)"] })
        let own = monitor.lines.filter { $0.contains("steady") }
        #expect(own.allSatisfy { $0.contains("\"pid\":\(getpid()),") })
    }

    @Test("monitor looks up the senders again after a restart of the bus")
    func restart() async throws {
        let bus = try await ProgramBus("notify-center")
        let monitor = try await bus.startReady("monitor")
        let first = DarwinNotifyCenter(bus: bus.bus.bus)
        try await eventually {
            try first.post("a")
            return monitor.lines.contains { $0.contains(" a darwin \(getpid()) ") }
        }
        try bus.bus.restart()
        // Other processes now have the same unique names. The first may post before the monitor is back.
        var watchers: [ChildProcess] = []
        try await eventually("the monitor names a watcher") {
            watchers.append(try bus.with("notifyutil").start(["-w", "x"] + (0..<300).flatMap { _ in ["-p", "b"] }))
            try await Task.sleep(for: .milliseconds(200))
            return watchers.contains { watcher in
                monitor.lines.contains { $0.contains(" b darwin \(watcher.identifier) ") }
            }
        }
        #expect(!monitor.lines.contains { $0.contains(" b darwin \(getpid()) ") })
    }
}
