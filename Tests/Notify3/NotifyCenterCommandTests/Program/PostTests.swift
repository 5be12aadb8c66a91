import NotifyCenterTestKit
import Testing

@Suite("post and watch, with the real program")
struct PostTests {
    @Test("JSON lines carry any name", arguments: [[], ["--distributed"]])
    func hostileNames(center: [String]) async throws {
        let bus = try await ProgramBus("notify-center")
        let count = Hostile.names.count
        let watcher = try bus.start(
            ["watch", "--json", "--count", "\(count)", "--ready"] + center + ["--"] + Hostile.names
        )
        try await eventually { watcher.errorText == "ready" }
        for name in Hostile.names { #expect(try await bus.run(["post"] + center + ["--", name]).status == 0) }
        #expect(await watcher.exitStatus() == 0)
        try await eventually { watcher.lines.count == count }
        let posts = try watcher.lines.map(jsonObject)
        #expect(posts.compactMap { $0["name"] as? String }.sorted() == Hostile.names.sorted())
        let kind = center.isEmpty ? "darwin" : "distributed"
        #expect(posts.allSatisfy { $0["type"] as? String == "post" && $0["center"] as? String == kind })
        #expect(posts.allSatisfy { $0["time"] is Double && ($0["sender"] as? String)?.hasPrefix(":") == true })
        #expect(posts.allSatisfy { $0["pid"] == nil })
    }

    @Test("a watch prints object and payload, and with an object only that object's posts")
    func payload() async throws {
        let payload = #"{"a":[1,{"b":"c\n"}],"d":1.5,"t":true,"u":18446744073709551615,"w":1.0,"é":"\u0000"}"#
        let bus = try await ProgramBus("notify-center")
        let lines = try await bus.startReady("watch", "x", "--distributed", "--count", "1")
        let json = try await bus.startReady("watch", "x", "--distributed", "--count", "1", "--json")
        let post = try await bus.run("post", "x", "--distributed", "--object", "o \"1\"", "--userinfo", payload)
        #expect(post.status == 0)
        let line = try await lines.line { _ in true }
        #expect(line.hasSuffix(#" x distributed "o \"1\"" \#(payload)"#), "\(line)")
        let other = try await json.line { _ in true }
        #expect(other.contains(#""object":"o \"1\"","userinfo":\#(payload)}"#), "\(other)")
        _ = try jsonObject(other)
        // A watch with an object reports no other object, and no Darwin posts.
        let watcher = try await bus.startReady("watch", "x", "--distributed", "--object", "a", "--count", "1")
        for options in [
            ["--distributed", "--object", "b"], [], ["--distributed", "--object", "a", "--userinfo", "{}"],
        ] {
            #expect(try await bus.run(["post", "x"] + options).status == 0)
        }
        #expect(await watcher.exitStatus() == 0)
        #expect(try await watcher.line { _ in true }.hasSuffix(#" x distributed "a" {}"#))
    }

    @Test("several names are watched, each post is a line, and notify(3) hears the posts")
    func severalNames() async throws {
        let bus = try await ProgramBus("notify-center")
        let watcher = try await bus.startReady("watch", "a", "b", "-c", "3")
        let listener = try await bus.with("notifyutil").startReady("-1", "b")
        for name in ["a", "c", "b", "a"] { #expect(try await bus.run("post", name).status == 0) }
        #expect(await watcher.exitStatus() == 0)
        #expect(await listener.exitStatus() == 0)
        try await eventually { watcher.lines.count == 3 }
        #expect(watcher.lines.compactMap { $0.split(separator: " ").dropFirst().first } == ["a", "b", "a"])
    }

    @Test("a userInfo that is not a JSON object or is nested too deep is refused")
    func malformed() async throws {
        let bus = try await ProgramBus("notify-center")
        let deep = "{\"a\":" + String(repeating: "[", count: 30) + String(repeating: "]", count: 30) + "}"
        let refusals = ["{", "{\"a\":null}", "{\"a\":1,\"a\":2}"].map { ($0, Int32(64), "byte ") }
        for (userInfo, status, reason) in refusals + [("[1]", 64, "not a JSON object"), (deep, 70, "nested more than")]
        {
            let result = try await bus.run("post", "x", "--distributed", "--userinfo", userInfo)
            #expect(result.status == status && result.errors.contains(reason), "\(result)")
        }
    }
}
