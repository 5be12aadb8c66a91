import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Testing

@Suite("Processes of tests")
struct ChildProcessTests {
    @Test("a new script runs, and a process that does not end in time is killed")
    func scripts() async throws {
        let process = try ChildProcess("sleep", ["1000"])
        #expect(await process.exitStatus(within: .milliseconds(10)) == 128 + 9)
        #expect(!process.isRunning)
        let directory = try TemporaryDirectory("a script's folder")
        let script = try ChildProcess(directory.writeScript("it's one", #"echo "$1"; exit 3"#), ["a 'word'"])
        #expect(try await script.line { !$0.isEmpty } == "a 'word'")
        #expect(await script.exitStatus() == 3)
    }

    @Test("its output is complete at its end, and a surviving child does not delay that")
    func outputAtItsEnd() async throws {
        for round in 1...8 {
            let talker = try ChildProcess("sh", ["-c", "seq 1 20000; echo the end >&2"])
            #expect(await talker.exitStatus() == 0)
            #expect(talker.lines.count == 20_000 && talker.errorText == "the end", "round \(round)")
        }
        let parent = try ChildProcess("sh", ["-c", "sleep 60 & echo $!"])
        #expect(await parent.exitStatus(within: .seconds(30)) == 0)
        if let child = parent.lines.first.flatMap({ pid_t($0) }) { kill(child, SIGKILL) }
    }
}
