import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Testing

@Suite("Programs on a terminal")
struct TerminalTests {
    /// Starts a program on a pseudo-terminal: the child's standard input is typed, and its output is the screen.
    private func onTerminal(
        _ program: String,
        _ arguments: [String] = [],
        environment: [String: String]
    ) throws -> ChildProcess {
        let terminal = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
        let variables = ["TERM": "xterm", "NO_COLOR": ""].merging(environment) { $1 }
        return try ChildProcess("python3", ["-c", terminal, program] + arguments, environment: variables)
    }

    @Test(
        "output has colours unless NO_COLOR is set or the terminal has none",
        arguments: [("NO_COLOR", "", true), ("NO_COLOR", "1", false), ("TERM", "dumb", false)]
    )
    func colour(_ variable: String, _ value: String, _ isExpected: Bool) async throws {
        let directory = try TemporaryDirectory("colour")
        let file = "\(directory.path)/managed.json"
        try Data(#"{"sharedDeviceMode": true, "passwordSignIn": true}"#.utf8).write(to: URL(fileURLWithPath: file))
        let command = ["configuration", "check", file]
        let check = try onTerminal(ChildProcess.built("shared-device"), command, environment: [variable: value])
        #expect(await check.exitStatus() == 0)
        #expect(check.lines.joined().contains("\u{1B}[") == isExpected, "\(check.lines)")
    }

    private func demoLive(_ environment: [String: String]) throws -> ChildProcess {
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appending(path: "../../..").standardized
        let programs = URL(fileURLWithPath: ChildProcess.built("demo")).deletingLastPathComponent().path
        return try onTerminal("\(root.path)/Examples/demo-live", [programs], environment: environment)
    }

    /// The processes of the demonstration: each has the folder in its environment or on its command line.
    private func parts(of folder: String) -> [Int32] { processes(with: folder, in: ["cmdline", "environ"]) }

    @Test("Ctrl-C during the start of demo-live ends it and leaves nothing behind")
    func interruptedStart() async throws {
        let directory = try TemporaryDirectory("demo-live")
        let folder = try directory.folder()
        // This stand-in for tmux blocks demo-live at its last step before the panes.
        let reached = "\(directory.path)/reached"
        _ = try directory.writeScript("tmux", "case $* in *kill-server*) exit;; esac; : > \(reached); exec sleep 600")
        let path = ProcessInfo.processInfo.environment["PATH"] ?? ""
        let demo = try demoLive(["TMPDIR": folder, "PATH": "\(directory.path):\(path)"])
        try await eventually("bus and users are there") {
            try #require(demo.isRunning, "\(demo.lines)")
            return FileManager.default.fileExists(atPath: reached)
        }
        try demo.write("\u{3}")
        #expect(await demo.exitStatus() == 130)
        #expect(demo.lines.contains { $0.hasSuffix("demo-live: interrupted\r") }, "\(demo.lines)")
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder) == [])
        #expect(parts(of: folder) == [])
    }

    @Test(
        "demo-live ends with its terminal, and leaves no process and no folder",
        .enabled(if: access("/usr/bin/tmux", X_OK) == 0, "tmux is not installed")
    )
    func closedTerminal() async throws {
        let directory = try TemporaryDirectory("demo-live")
        let folder = try directory.folder()
        let demo = try demoLive(["TMPDIR": folder, "LINES": "48", "COLUMNS": "160"])
        try await eventually("all panes are there, and shown") {
            try #require(demo.isRunning, "\(demo.lines)")
            return !Set(parts(of: folder)).isDisjoint(with: processes(with: "attach-session"))
        }
        demo.kill()
        try await eventually("everything has ended") { parts(of: folder).isEmpty }
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder) == [])
    }
}
