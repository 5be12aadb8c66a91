import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDevice
import SharedDeviceTestKit
import Testing

@Suite("shared-device run: an unmodified program takes part")
struct RunCommandTests {
    private static let identifier = "org.example.browser"

    /// A device on which `shared-device run` runs this command, with its data in the app's own directory.
    private func device(
        running command: [String],
        _ options: [String] = ["--start", "signed-in"],
        starts: Bool = true
    ) async throws -> (device: TestDevice, app: DeviceApp) {
        let app = TestApp(
            Self.identifier,
            executable: ChildProcess.built("shared-device"),
            arguments: ["run", "--app", Self.identifier, "--data", "{home}/private"] + options + ["--"] + command,
            startsWithDevice: starts
        )
        let device = try await TestDevice(apps: [app], cleanup: .strict)
        return (device, try device.app(Self.identifier))
    }

    private func device(
        _ script: String,
        _ options: [String] = ["--start", "signed-in"],
        starts: Bool = true
    ) async throws -> (device: TestDevice, app: DeviceApp) {
        try await device(running: ["/bin/sh", "-c", script], options, starts: starts)
    }

    private func waitUntilRunning(_ app: DeviceApp, times: Int = 1) async throws {
        try await eventually("the program has run \(times) times", within: .seconds(60)) {
            app.lines.count { $0 == "running" } >= times
        }
    }

    @Test("home and data are in the directory, which is emptied after each session")
    func wholeRound() async throws {
        let (device, app) = try await device(
            // Writes the markers of the person in the file, once.
            #"""
            who=$(cat {home}/who); rm -f {home}/who
            for place in "$HOME" "$XDG_CONFIG_HOME" "$XDG_CACHE_HOME" "$XDG_DATA_HOME" "$XDG_DOWNLOAD_DIR" "$TMPDIR"; do
                echo "marker-of-$who" >"$place/file"
            done
            echo running; exec sleep 1000
            """#,
            ["--start", "always"],
            starts: false
        )
        try writeFile("ada", to: "\(app.home)/who")
        try app.start()
        try await device.signIn("ada")
        try await device.waitUntilRunning()
        try await waitUntilRunning(app)
        #expect(exists("\(app.home)/private/home/Downloads/file"))
        try writeFile("grace", to: "\(app.home)/who")
        try await device.signOut(deadline: .seconds(120)).requireClean(of: "marker-of-ada")
        try await waitUntilRunning(app, times: 2)
        // The same command serves the next session.
        try await device.signIn("grace")
        try await device.waitUntilRunning()
        try await device.signOut(deadline: .seconds(120)).requireClean()
        try await waitUntilRunning(app, times: 3)
        #expect(try app.findings(of: ["marker-of-grace"]).isEmpty)
    }

    @Test("a session that begins and ends while the command hangs leaves no data")
    func missedSession() async throws {
        let (device, app) = try await device(
            #"echo running; while :; do [ -e {home}/go ] && echo marker-of-ada >"$HOME/secret"; sleep 0.05; done"#,
            ["--start", "always"]
        )
        try await waitUntilRunning(app)
        let command = try #require(app.processIdentifier)
        kill(command, SIGSTOP)
        defer { kill(command, SIGCONT) }
        try await device.signIn("ada")
        try writeFile("", to: "\(app.home)/go")
        try await eventually("Ada's data is stored") { exists("\(app.home)/private/home/secret") }
        try FileManager.default.removeItem(atPath: "\(app.home)/go")
        // Ends at the deadline, because the command does not respond.
        _ = try await device.signOut(deadline: .seconds(1))
        kill(command, SIGCONT)
        try await waitUntilRunning(app, times: 2)
        #expect(try app.findings(of: ["marker-of-ada"]).isEmpty)
    }

    @Test("after a kill, the next start ends a program with an overwritten environment")
    func overwrittenVariables() async throws {
        let directory = try TemporaryDirectory("overwritten-variables")
        let program = "\(directory.path)/browser"
        let script = #"""
            #!/bin/sh
            if [ -n "$SHARED_DEVICE_ADAPTER" ]; then exec env -i PATH="$PATH" HOME="$HOME" "$0" "$@"; fi
            echo marker-of-ada >"$HOME/secret"; echo $$ >>"$0.processes"; echo running
            while :; do sleep 0.2; done
            """#
        try script.write(toFile: program, atomically: true, encoding: .utf8)
        chmod(program, 0o755)
        let options = ["--preset", "firefox", "--start", "signed-in"]
        let (device, app) = try await device(running: [program], options)
        try await device.signIn("ada")
        try await waitUntilRunning(app)
        let text = try String(contentsOfFile: program + ".processes", encoding: .utf8)
        let process = try #require(pid_t(text.dropLast()))
        defer { kill(process, SIGKILL) }
        func runs() -> Bool { FileManager.default.contents(atPath: "/proc/\(process)/cmdline")?.isEmpty == false }
        try await app.kill()
        #expect(try await !device.signOut(deadline: .seconds(1)).isClean)
        #expect(runs())
        try app.start()
        try await device.waitUntilClean().requireClean(of: "marker-of-ada")
        #expect(!runs())
    }

    @Test("a program that exits is not restarted; the command exits with its status")
    func ended() async throws {
        let (device, app) = try await device(#"echo marker-of-ada >"$HOME/secret"; echo running; exit 7"#)
        try await device.signIn("ada")
        try await eventually("the program has ended", within: .seconds(60)) { app.errorText.contains("has ended") }
        #expect(app.errorText.contains("with status 7; its data is deleted"), "\(app.errorText)")
        #expect(app.isRunning)
        try await device.signOut(deadline: .seconds(120)).requireClean(of: "marker-of-ada")
        try await eventually("the command has ended", within: .seconds(60)) { !app.isRunning }
        #expect(app.lines.count { $0 == "running" } == 1)
    }

    /// Starts the command again, which asks the first instance to start its program.
    private func startAgain(_ app: DeviceApp, on device: TestDevice) async throws {
        let second = try ChildProcess(
            ChildProcess.built("shared-device"),
            [
                "run", "--app", Self.identifier, "--data", "\(app.home)/private", "--bus", device.bus.address, "--",
                "/bin/true",
            ],
            environment: ["XDG_STATE_HOME": "\(app.home)/state"]
        )
        #expect(await second.exitStatus() == 0, "\(second.errorText)")
        let answer = second.lines.joined()
        #expect(answer.contains("runs already (process ") && answer.contains("was asked to start"), "\(answer)")
    }

    @Test("a second start of the command starts its program again, if it may run")
    func again() async throws {
        let (device, app) = try await device(#"if [ -e {home}/signed-in ]; then echo running; else echo early; fi"#)
        try await eventually("the command has its lock", within: .seconds(60)) {
            exists("\(app.home)/state/\(Self.identifier)/run.lock")
        }
        for _ in 0..<3 { try await startAgain(app, on: device) }
        try writeFile("yes", to: "\(app.home)/signed-in")
        try await device.signIn("ada")
        try await waitUntilRunning(app)
        #expect(!app.lines.contains("early"))
        try await eventually("the program has ended", within: .seconds(60)) { app.errorText.contains("has ended") }
        try await startAgain(app, on: device)
        try await waitUntilRunning(app, times: 2)
    }

    /// Runs the command in this directory. There is no broker.
    private func start(_ arguments: [String], in directory: String, state: String) throws -> ChildProcess {
        let command = [ChildProcess.built("shared-device"), "run", "--app", "org.example.x"]
        return try ChildProcess(
            "/bin/sh",
            ["-c", #"cd "$0" && exec "$@""#, directory] + command + ["--bus", "unix:path=/nonexistent"] + arguments,
            environment: ["XDG_STATE_HOME": state]
        )
    }

    @Test("a program that cannot run, and data beyond its own, are refused")
    func refused() async throws {
        let directory = try TemporaryDirectory("run-refused")
        let (inner, state) = ("\(directory.path)/inner", try TemporaryDirectory("run-state"))
        makeDirectory(inner)
        for name in ["link", "inner/link"] { succeed(symlink(directory.path, "\(directory.path)/\(name)")) }
        // A file without the right to execute it, and a directory with existing files.
        for name in ["text", "docs/letter"] { try writeFile("dear Grace", to: "\(inner)/\(name)") }
        let here = "is the working directory, or above it"
        let echo = ["--", "/bin/echo", "started"]
        let cases: [([String], Int32, [String])] = [
            (["/"] + echo, EX_USAGE, ["--data"]), (["\(state.path)/org.example.x"] + echo, EX_USAGE, ["--data"]),
            (["/tmp/kiosk-*"] + echo, EX_USAGE, ["--data"]), ([".", "--adopt"] + echo, EX_USAGE, [here]),
            (["..", "--adopt"] + echo, EX_USAGE, [here]), (["link", "--adopt"] + echo, EX_USAGE, [here]),
            (["../link/", "--adopt"] + echo, EX_USAGE, [here]),
            (
                ["docs"] + echo, EX_USAGE,
                ["--data: docs is not empty, and org.example.x has never used it; name a new", "--adopt"]
            ),
            // The shell's status.
            (["data", "--", "no-such-program"], 127, ["there is no program no-such-program in PATH"]),
            (["data", "--", "./no-such-program"], 127, ["there is no program ./no-such-program;"]),
            (["data", "--", "./text"], 126, ["chmod +x ./text"]),
        ]
        for (arguments, status, words) in cases {
            let process = try start(["--data"] + arguments, in: inner, state: state.path)
            #expect(await process.exitStatus() == status, "\(arguments)")
            let text = process.errorText
            #expect(words.allSatisfy { text.contains($0) } && process.lines.isEmpty, "\(arguments): \(text)")
        }
        // A directory that was adopted once needs no option later.
        for options in [["docs", "--adopt"], ["\(inner)/docs"]] {
            let process = try start(["--data"] + options + echo, in: inner, state: state.path)
            try await eventually("run looks for a broker", within: .seconds(60)) { !process.errorText.isEmpty }
            #expect(!process.errorText.contains("--data"), "\(process.errorText)")
            await process.end()
        }
        #expect(exists("\(inner)/docs/letter"), "there was no sign-out")
    }
}
