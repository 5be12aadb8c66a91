import Basics
import NotifyCenterTestKit
import Testing

@Suite("How the program ends")
struct ExitTests {
    @Test("a wrong command line does nothing and exits with 1; help and the version with 0")
    func usage() async throws {
        let bus = try await ProgramBus()
        let watcher = try await bus.startReady("-w", "a", "-w", "b")
        let wrong = try await bus.run("-p", "a", "-p")
        #expect(wrong.status == 1 && wrong.lines.isEmpty)
        #expect(wrong.errors == "name required following -p\nsee notifyutil --help")
        // Commands before the mistake print nothing.
        #expect(try await bus.run("-p", "b").status == 0)
        try await watcher.line { $0 == "b" }
        #expect(watcher.lines == ["b"])
        for option in ["-h", "-help"] {
            let result = try await bus.run(option)
            #expect(result.status == 0 && result.lines.isEmpty && result.errors.contains("-p NAME"))
        }
        let help = try await bus.run("--help")
        #expect(help.status == 0 && help.errors.isEmpty && help.lines.contains { $0.contains("-p NAME") })
        let version = try await bus.run("--version")
        #expect(version.status == 0 && version.lines == [ProjectVersion.line(of: "notifyutil")])
        for arguments in [[], ["-q", "--ready"]] { #expect(try await bus.run(arguments).status == 0) }
    }

    @Test("a missing bus exits with 69, Darwin's line, the address and the remedy")
    func noBus() async throws {
        let bus = try await ProgramBus()
        let nowhere = ["--address", "unix:path=/nowhere/bus"]
        let result = try await bus.run(
            nowhere + ["-w", "n1", "-check", "-w", "n2", "-g", "n3", "-s", "n4", "1", "-p", "n5"]
        )
        #expect(result.status == 69)
        #expect(result.lines == (1...5).map { "n\($0): Failed with code 9" })
        #expect(result.errors.contains("/nowhere/bus") && result.errors.contains("check that the bus runs"))
        let report = try await bus.run(nowhere + ["--dump"])
        #expect(report.status == 69 && report.lines.isEmpty && report.errors.contains("/nowhere/bus"))
    }

    @Test(
        "a refused match rule exits with 70, the bus's error and the remedy",
        .enabled(if: PrivateBus.Daemon.chosen == .daemon, "dbus-broker does not count rules by connection")
    )
    func ruleLimit() async throws {
        let bus = ProgramBus("notifyutil", on: try PrivateBus(.init(matchRulesPerConnection: 1)))
        let result = try await bus.run("-w", "a", "-w", "b", "-w", "c")
        #expect(result.status == 70 && result.lines.contains("c: Failed with code 1000000"))
        #expect(result.errors.contains("could not watch c: could not add the match rule"))
        #expect(result.errors.contains("[org.freedesktop.DBus.Error.LimitsExceeded]; "))
    }

    @Test("the bus may come from an option or from the environment")
    func buses() async throws {
        let bus = try await ProgramBus()
        let watcher = try await bus.startReady("-2", "a")
        let nowhere = ["NOTIFY_CENTER_BUS": "unix:path=/nowhere/bus"]
        #expect(try await bus.run(["-p", "a"], environment: nowhere).status == 69)
        #expect(try await bus.run(["--address", bus.bus.address, "-p", "a"], environment: nowhere).status == 0)
        #expect(try await bus.run(["-p", "a", "--session"], environment: nowhere).status == 0)
        #expect(await watcher.exitStatus() == 0)
    }

    @Test("both commands refuse another user's name and arguments that are not UTF-8")
    func refusals() async throws {
        // CF-W3. Root may post any name, so the test runs as another user if root runs it.
        let other = #"as=; [ "$(id -u)" = 0 ] && as='setpriv --reuid 65534 --clear-groups'; $as "$N" "#
        let failures = ["user.uid.1.a: Failed with code 7", "user.uid.1.b: Failed with code 7", "77"]
        let reason = "could not post user.uid.1.a: the name belongs to another user"
        let cases: [(program: String, script: String, lines: [String], error: String)] = [
            ("notifyutil", "\(other)-p user.uid.1.a -w user.uid.1.b", failures, reason),
            ("notify-center", "\(other)post user.uid.1.a", ["77"], reason),
            ("notifyutil", #""$N" -p $'a\xff'"#, ["1"], "argument 2 is not UTF-8 text"),
            ("notify-center", #""$N" post $'a\xff'"#, ["64"], "argument 2 is not UTF-8 text"),
        ]
        for (program, script, lines, error) in cases {
            let result = try await ProgramBus(program).shell("\(script); echo $?")
            #expect(result.lines == lines && result.errors.contains(error), "\(program): \(result)")
        }
    }

    @Test("a full disk or a missing standard output exits with 74 and the reason")
    func unwritable() async throws {
        let bus = try await ProgramBus()
        for arguments in ["--help", "--version", "-1 a -p a", "-g a"] {
            let full = try await bus.shell("\"$N\" \(arguments) > /dev/full; echo $?")
            #expect(full.lines == ["74"] && full.errors.contains("No space left"), "\(arguments): \(full)")
            // All messages of the program itself are written in the same way.
            if arguments == "--version" { continue }
            let closed = try await bus.shell("\"$N\" \(arguments) >&-; echo $?")
            let isReported = closed.errors.contains("could not write the output")
            #expect(closed.lines == ["74"] && isReported, "\(arguments): \(closed)")
        }
    }

    @Test("SIGPIPE ends the program silently when the reader ends, unless it is ignored")
    func closedPipe() async throws {
        let bus = try await ProgramBus()
        let cases: [(script: String, lines: [String], error: String)] = [
            (#""$N" -w a -p a | head -n 1; echo "${PIPESTATUS[0]}""#, ["a", "141"], ""),
            (#"exec 4> >(true); wait $!; "$N" --help >&4; echo $?"#, ["141"], ""),
            // If SIGPIPE is ignored, the end of the reader is an ordinary error.
            (#"trap '' PIPE; "$N" -w a -p a | head -n 1; echo "${PIPESTATUS[0]}""#, ["a", "74"], "Broken pipe"),
            // With -q the end of the reader does not matter.
            (#""$N" -q -1 a -z 300 -p b -p a | true; echo "${PIPESTATUS[0]}""#, ["0"], ""),
        ]
        for (script, lines, error) in cases {
            let result = try await bus.shell(script)
            #expect(result.lines == lines, "\(script)")
            #expect(error.isEmpty ? result.errors == "" : result.errors.contains(error), "\(script): \(result)")
        }
    }

    @Test("a post needs none of the standard streams, and a watch no standard error")
    func noStreams() async throws {
        let bus = try await ProgramBus()
        let watcher = try await bus.startReady("-1", "a")
        #expect(try await bus.shell(#""$N" -p a <&- >&- 2>&-; echo $?"#).lines == ["0"])
        #expect(await watcher.exitStatus() == 0)
        let result = try await bus.shell(#""$N" -v -1 a -p a 2>&-; "$N" -x 2>/dev/full; echo $?"#)
        #expect(result.lines.count == 2 && result.lines[0].contains(" a ") && result.lines[1] == "1")
    }
}
