import Foundation
import Testing

@Suite("Forms of the output, with the real program")
struct FormTests {
    private func object(_ line: String?) throws -> [String: Any] {
        let line = try #require(line)
        return try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
    }

    @Test("verbose lines have token, time, name, state and kind")
    func verbose() async throws {
        let bus = try await ProgramBus(hasNotifyd: true)
        for word in ["port", "file", "dispatch", "check", "plain"] {
            let result = try await bus.run("-v", "-\(word)", "-1", "a b", "-s", "a b", "77", "-p", "a b")
            #expect(result.lines.count == 1)
            let form = try Regex(#"\[\d+\] \d{10,}\.\d{3} a b 77 \#(word)"#)
            #expect(result.lines.first?.wholeMatch(of: form) != nil, "\(result)")
            #expect(result.status == 0)
        }
    }

    @Test("if the state cannot be read, the line says so, and standard error has the reason once")
    func noState() async throws {
        let result = try await ProgramBus().run("-v", "-2", "a", "-p", "a", "-p", "a")
        #expect(result.lines.count == 2)
        for line in result.lines { #expect(line.wholeMatch(of: /\[\d+\] \d+\.\d{3} a : Failed with code 9/) != nil) }
        #expect(result.errors.components(separatedBy: "no notifyd").count == 2)
        #expect(result.status == 0)
    }

    @Test("JSON lines carry any name", arguments: Hostile.names)
    func hostileNames(name: String) async throws {
        let result = try await ProgramBus().run("--json", "-1", name, "-p", name)
        #expect(result.lines.count == 1)
        let event = try object(result.lines.first)
        #expect(event["type"] as? String == "event")
        #expect(event["name"] as? String == name)
        #expect(event["kind"] as? String == "port")
        #expect(event["token"] is Int && event["time"] is Double)
        #expect(event["state"] == nil)
    }

    @Test("verbose JSON has the state, also if it is too large for a signed number")
    func jsonState() async throws {
        let bus = try await ProgramBus(hasNotifyd: true)
        let result = try await bus.run("--json", "-v", "-1", "a", "-s", "a", "18446744073709551615", "-p", "a")
        #expect(try object(result.lines.first)["state"] as? UInt64 == .max)
    }

    @Test("quiet reports nothing, in words or in JSON", arguments: [[], ["--json"]])
    func quiet(json: [String]) async throws {
        let result = try await ProgramBus().run(json + ["-q", "-1", "a", "-p", "a"])
        #expect(result.lines.isEmpty && result.status == 0)
    }

    @Test("a distributed notification's object and payload come back")
    func distributed() async throws {
        let payload = #"{"a":[1,{"b":"c\n"}],"d":1.5,"t":true,"u":18446744073709551615,"é":"\u0000"}"#
        let arguments = ["--distributed", "--object", "o \"1\"", "--userinfo", payload, "-1", "x", "-p", "x"]
        let verbose = try await ProgramBus().run(["-v"] + arguments)
        #expect(verbose.lines.first?.hasSuffix(#" x "o \"1\"" \#(payload) distributed"#) == true, "\(verbose)")
        let json = try await ProgramBus().run(["--json"] + arguments)
        #expect(
            json.lines.first?.contains(#""object":"o \"1\"","userinfo":\#(payload),"sender":":"#) == true,
            "\(json)"
        )
        _ = try object(json.lines.first)
    }

    @Test("a distributed watcher with an object reports only that object, and nothing of the Darwin center")
    func objects() async throws {
        let result = try await ProgramBus().run(
            "-v",
            "--distributed",
            "--object",
            "a",
            "-1",
            "x",
            "--object",
            "b",
            "-p",
            "x",
            "--darwin",
            "-p",
            "x",
            "--distributed",
            "--object",
            "a",
            "--userinfo",
            "{}",
            "-p",
            "x"
        )
        #expect(result.lines.count == 1)
        #expect(result.lines.first?.hasSuffix(#" x "a" {} distributed"#) == true)
    }

    @Test("a payload that is too deep is refused with the bound")
    func tooDeep() async throws {
        let deep = "{\"a\":" + String(repeating: "[", count: 30) + String(repeating: "]", count: 30) + "}"
        let result = try await ProgramBus().run("--distributed", "--userinfo", deep, "-p", "x")
        #expect(result.status == 70)
        #expect(result.lines == ["x: Failed with code 1000000"])
        #expect(result.errors.contains("nested more than"))
    }
}
