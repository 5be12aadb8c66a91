import NotifyCenterTestKit
import Testing

@Suite struct ChildProcessTests {
    @Test func aProcessThatDoesNotEndInTimeIsKilled() async throws {
        let process = try ChildProcess("sleep", ["1000"])
        #expect(await process.exitStatus(within: .milliseconds(10)) == 128 + 9)
        #expect(!process.isRunning)
    }

    @Test func aScriptThatWasJustWrittenRuns() async throws {
        let directory = try TemporaryDirectory("a script's folder")
        let script = try directory.writeScript("it's one", #"echo "$1"; exit 3"#)
        let process = try ChildProcess(script, ["a 'word'"])
        #expect(try await process.line { !$0.isEmpty } == "a 'word'")
        #expect(await process.exitStatus() == 3)
    }
}
