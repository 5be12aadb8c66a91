import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDevice
import SharedDeviceTestKit
import Testing

@Suite("shared-device run: an unmodified program takes part")
struct RunCommandTests {
    private static let identifier = "org.example.browser"

    /// A device on which `shared-device run` runs this script, with its data in the app's own directory.
    private func device(_ script: String, _ options: [String] = [], starts: Bool = true) async throws -> TestDevice {
        let app = TestApp(
            Self.identifier,
            executable: ChildProcess.built("shared-device"),
            arguments: ["run", "--app", Self.identifier, "--data", "{home}/private"] + options + [
                "--", "/bin/sh", "-c", script,
            ],
            startsWithDevice: starts
        )
        return try await TestDevice(apps: [app], cleanup: .strict)
    }

    @Test("home and data are in the directory, which is emptied after the session")
    func wholeRound() async throws {
        let device = try await device(
            // Writes Ada's markers in the first run only.
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
        let app = try device.app(Self.identifier)
        try "ada".write(toFile: "\(app.home)/who", atomically: true, encoding: .utf8)
        try app.start()
        try await device.signIn("ada")
        try await device.waitUntilRunning()
        try await eventually("the program runs", within: .seconds(60)) { app.lines.contains("running") }
        #expect(FileManager.default.fileExists(atPath: "\(app.home)/private/home/Downloads/file"))
        try await device.signOut(deadline: .seconds(120)).requireClean(of: "marker-of-ada")
        try await eventually("it starts anew", within: .seconds(60)) { app.lines.filter { $0 == "running" }.count == 2 }
    }

    @Test("processes outside the program's group and parents end, and their data is gone")
    func daemons() async throws {
        let device = try await device(
            #"echo running; (setsid sh -c 'trap "" HUP; while :; do echo marker-of-ada >>"$HOME/log" 2>/dev/null; sleep 0.01; done' >/dev/null 2>&1 &) ; exec sleep 1000"#,
            ["--start", "signed-in"]
        )
        try await device.signIn("ada")
        try await device.waitUntilRunning()
        let app = try device.app(Self.identifier)
        try await eventually("the daemon writes", within: .seconds(60)) {
            FileManager.default.fileExists(atPath: "\(app.home)/private/home/log")
        }
        try await device.signOut(deadline: .seconds(60)).requireClean(of: "marker-of-ada")
        #expect(try FileManager.default.contentsOfDirectory(atPath: "\(app.home)/private").isEmpty)
    }

    @Test(
        "after a kill, the next start of the command cleans up before the program starts"
    )
    func killed() async throws {
        let device = try await device(
            #"test -e "$HOME/secret" && echo leak; echo marker-of-ada >"$HOME/secret"; echo running; exec sleep 1000"#,
            ["--start", "signed-in"]
        )
        try await device.signIn("ada")
        try await device.waitUntilRunning()
        let app = try device.app(Self.identifier)
        try await eventually("the program runs", within: .seconds(60)) { app.lines.contains("running") }
        try await app.kill()
        let report = try await device.signOut(deadline: .seconds(1))
        #expect(!report.isClean)
        #expect(FileManager.default.fileExists(atPath: "\(app.home)/private/home/secret"))
        try app.start()
        try await device.waitUntilClean().requireClean(of: "marker-of-ada")
        try await device.signIn("grace")
        try await eventually("it runs for grace", within: .seconds(60)) {
            app.lines.filter { $0 == "running" }.count == 2
        }
        #expect(!app.lines.contains("leak"))
    }

    @Test(
        "after a kill, the next start ends a program with an overwritten environment"
    )
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
        let device = try await TestDevice(
            apps: [
                TestApp(
                    Self.identifier,
                    executable: ChildProcess.built("shared-device"),
                    arguments: [
                        "run", "--app", Self.identifier, "--data", "{home}/private", "--preset", "firefox", "--start",
                        "signed-in", "--", program,
                    ]
                )
            ],
            cleanup: .strict
        )
        try await device.signIn("ada")
        let app = try device.app(Self.identifier)
        try await eventually("the program runs", within: .seconds(60)) { app.lines.contains("running") }
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

    @Test(
        "a program that exits is not restarted; the command exits with its status"
    )
    func ended() async throws {
        let device = try await device(
            #"echo marker-of-ada >"$HOME/secret"; echo running; exit 7"#,
            ["--start", "signed-in"]
        )
        try await device.signIn("ada")
        let app = try device.app(Self.identifier)
        try await eventually("the program has ended", within: .seconds(60)) { app.errorText.contains("has ended") }
        #expect(app.errorText.contains("with status 7; its data is deleted"), "\(app.errorText)")
        #expect(app.isRunning)
        try await device.signOut(deadline: .seconds(120)).requireClean(of: "marker-of-ada")
        try await eventually("the command has ended", within: .seconds(60)) { !app.isRunning }
        #expect(app.lines.filter { $0 == "running" }.count == 1)
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

    @Test("a second start of the command starts nothing while the program may not run")
    func againTooEarly() async throws {
        let device = try await device(
            #"if [ -e {home}/signed-in ]; then echo running; else echo early; fi"#,
            ["--start", "signed-in"]
        )
        let app = try device.app(Self.identifier)
        try await eventually("it has its lock", within: .seconds(60)) {
            FileManager.default.fileExists(atPath: "\(app.home)/state/\(Self.identifier)/run.lock")
        }
        for _ in 0..<3 { try await startAgain(app, on: device) }
        try "yes".write(toFile: "\(app.home)/signed-in", atomically: true, encoding: .utf8)
        try await device.signIn("ada")
        try await eventually("it runs for ada", within: .seconds(60)) { app.lines.contains("running") }
        #expect(!app.lines.contains("early"))
    }

    @Test("a second start of the command makes the first restart its program")
    func again() async throws {
        let device = try await device("echo running; exit 0", ["--start", "signed-in"])
        try await device.signIn("ada")
        let app = try device.app(Self.identifier)
        try await eventually("the program has ended", within: .seconds(60)) { app.errorText.contains("has ended") }
        try await startAgain(app, on: device)
        try await eventually("the program ran again", within: .seconds(60)) {
            app.lines.filter { $0 == "running" }.count == 2
        }
    }

    @Test(
        "a path that covers more than the program's data is refused before any start",
        arguments: ["/", "{state}", "/tmp/kiosk-*"]
    )
    func refused(data: String) async throws {
        let directory = try TemporaryDirectory("run-refused")
        let data = data.replacingOccurrences(of: "{state}", with: "\(directory.path)/state/org.example.x")
        let process = try start(["--data", data, "--", "/bin/echo", "started"], in: directory)
        #expect(await process.exitStatus() == EX_USAGE)
        #expect(process.errorText.contains("--data"))
        #expect(process.lines.isEmpty)
    }

    /// Runs the command in this directory, which also has its record. There is no broker.
    private func start(_ arguments: [String], in directory: TemporaryDirectory) throws -> ChildProcess {
        try ChildProcess(
            "/bin/sh",
            [
                "-c", #"cd "$0" && exec "$@""#, directory.path, ChildProcess.built("shared-device"), "run", "--app",
                "org.example.x", "--bus", "unix:path=/nonexistent",
            ] + arguments,
            environment: ["XDG_STATE_HOME": "\(directory.path)/state"]
        )
    }

    @Test("the working directory and its parents are refused", arguments: [".", "..", "link", "../link/"])
    func workingDirectory(data: String) async throws {
        let directory = try TemporaryDirectory("run-here")
        succeed(mkdir("\(directory.path)/inner", 0o700))
        for name in ["link", "inner/link"] { succeed(symlink(directory.path, "\(directory.path)/\(name)")) }
        let process = try ChildProcess(
            "/bin/sh",
            [
                "-c", #"cd "$0/inner" && exec "$@""#, directory.path, ChildProcess.built("shared-device"), "run",
                "--app", "org.example.x", "--data", data, "--adopt", "--bus", "unix:path=/nonexistent", "--",
                "/bin/echo", "started",
            ],
            environment: ["XDG_STATE_HOME": "/tmp/\(UUID().uuidString)"]
        )
        #expect(await process.exitStatus() == EX_USAGE)
        #expect(process.errorText.contains("is the working directory, or above it"), "\(process.errorText)")
        #expect(process.lines.isEmpty)
    }

    @Test("a directory with existing files is refused until it is adopted")
    func adoption() async throws {
        let directory = try TemporaryDirectory("run-adopts")
        let file = "\(directory.path)/docs/letter"
        succeed(mkdir("\(directory.path)/docs", 0o700))
        try "dear Grace".write(toFile: file, atomically: true, encoding: .utf8)
        let words = ["--", "/bin/echo", "started"]
        let refused = try start(["--data", "docs"] + words, in: directory)
        #expect(await refused.exitStatus() == EX_USAGE)
        let text = refused.errorText
        #expect(text.contains("--data: docs is not empty, and org.example.x has never used it; name a new"), "\(text)")
        #expect(text.contains("--adopt"), "\(text)")
        for options in [["--data", "docs", "--adopt"], ["--data", "\(directory.path)/docs"]] {
            let process = try start(options + words, in: directory)
            try await eventually("it looks for the broker", within: .seconds(60)) { !process.errorText.isEmpty }
            #expect(!process.errorText.contains("--data"), "\(process.errorText)")
            process.send(SIGTERM)
            #expect(await process.exitStatus(within: .seconds(60)) == 0, "\(process.errorText)")
        }
        #expect(FileManager.default.fileExists(atPath: file), "nobody has signed out")
    }

    @Test(
        "a missing or unexecutable program ends the command with the shell's status",
        arguments: [
            ("no-such-program", 127, "there is no program no-such-program in PATH"),
            ("./no-such-program", 127, "there is no program ./no-such-program;"), ("./text", 126, "chmod +x ./text"),
        ] as [(String, Int32, String)]
    )
    func noProgram(program: String, status: Int32, words: String) async throws {
        let directory = try TemporaryDirectory("run-nothing")
        try "text".write(toFile: "\(directory.path)/text", atomically: true, encoding: .utf8)
        succeed(chmod("\(directory.path)/text", 0o644))
        let process = try start(["--data", "data", "--", program], in: directory)
        #expect(await process.exitStatus() == status)
        #expect(process.errorText.contains(words), "\(process.errorText)")
    }
}
