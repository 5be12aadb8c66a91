import Foundation
import NotifyCenter
@_spi(Extensions) import NotifyCenterTestKit
import Testing

// Rules, a.15, and the command line.
@Suite struct MaintenanceTests {
    private func run(_ arguments: [String], _ environment: [String: String] = [:]) async throws -> Outcome {
        try await Outcome(of: ChildProcess(ChildProcess.built("notifyd"), arguments, environment: environment))
    }

    @Test func aSignalOrACommandGivesItsStatus() async throws {
        let daemon = try await Daemon(configuration: "set p 5\n")
        let client = try Client(daemon.bus)
        client.answers(["a"])
        try await client.enter("a")
        let short = try await daemon.statusFile(SIGUSR1)
        #expect(short.hasPrefix("notifyd, process \(daemon.process.identifier)\n"))
        #expect(short.contains("names: 3, permanent 2\n"))
        #expect(!short.contains("name “a”"))
        let long = try await daemon.statusFile(SIGUSR2)
        #expect(long.contains("name “a”: state 0\n  process \(getpid()), user \(geteuid())"))
        #expect(long.contains("name “p”: state 5, permanent\n"))
        let path = "\(daemon.directory.path)/notifyd_\(daemon.process.identifier).status"
        #expect(try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int == 0o600)
        // The status follows no link.
        let victim = "\(daemon.directory.path)/victim"
        try "precious".write(toFile: victim, atomically: true, encoding: .utf8)
        unlink(path)
        symlink(victim, path)
        daemon.process.send(SIGUSR1)
        try await eventually { daemon.process.errorText.contains("could not write the status") }
        #expect(try String(contentsOfFile: victim, encoding: .utf8) == "precious")
        let status = try await run(["--status"], daemon.bus.environment)
        #expect(status.status == 0 && status.lines.first == "notifyd, process \(daemon.process.identifier)")
        daemon.process.send(SIGTERM)
        _ = await daemon.process.exitStatus()
        #expect(try await run(["--status"], daemon.bus.environment).status == 69)
    }

    @Test func theConfigurationIsReadAgain() async throws {
        let daemon = try await Daemon(configuration: "set old 1\nset kept 1\n")
        let client = try Client(daemon.bus)
        try await client.set("kept", 2)
        try daemon.reload("set kept 9\nset new 3\nnonsense\n")
        try await eventually("read again") { try await client.state("new") == 3 }
        #expect(try await client.state("old") == 0)
        #expect(try await client.state("kept") == 2)
        try await eventually { daemon.process.errorText.contains("line 3: “nonsense” is not a keyword") }
        // A file that cannot be used leaves the previous configuration in force.
        chmod("\(daemon.directory.path)/notify.conf", 0o666)
        daemon.process.send(SIGHUP)
        try await eventually { daemon.process.errorText.contains("other users may write it") }
        #expect(try await client.state("new") == 3)
    }

    @Test func aConfigurationIsChecked() async throws {
        let directory = try TemporaryDirectory("notifyd")
        let (file, loop) = ("\(directory.path)/notify.conf", "\(directory.path)/itself")
        // A path that even root cannot read.
        symlink("itself", loop)
        try "set a\nset b x\nhide c\n".write(toFile: file, atomically: true, encoding: .utf8)
        let bad = try await run(["--check-configuration", file])
        let lines = bad.errors.split(separator: "\n")
        try #require(bad.status == 65 && lines.count == 2)
        #expect(lines[0].hasPrefix("notifyd: \(file), line 2: “x” is not a state: “set b x”; write a number"))
        try "set a\n".write(toFile: file, atomically: true, encoding: .utf8)
        for (path, status) in [(file, 0), ("/nonexistent", 66), (loop, 66)] as [(String, Int32)] {
            #expect(try await run(["--check-configuration", path]).status == status, "\(path)")
        }
    }

    @Test func theShippedConfigurationIsValid() throws {
        let text = try String(contentsOfFile: shippedFile("notify.conf"), encoding: .utf8)
        let (configuration, errors) = ConfigurationParser.parse(Array(text.utf8))
        #expect(errors.isEmpty)
        #expect(!configuration.monitors.isEmpty)
        #expect(!configuration.rules.isOpen(.write, "com.apple.system.timezone"))
    }

    @Test func theCommandLineDecidesTheExitStatus() async throws {
        let failures: [(arguments: [String], status: Int32, reason: String)] = [
            (["--nonsense"], 64, "unrecognized argument"), (["--address"], 64, "--address takes"),
            (["extra"], 64, "unrecognized argument"),
            (["--address", "unix:path=/nonexistent"], 69, "could not connect to the bus at unix:path=/nonexistent"),
        ]
        for (arguments, status, reason) in failures {
            let outcome = try await run(arguments)
            #expect(outcome.status == status && outcome.lines.isEmpty, "\(outcome)")
            #expect(outcome.errors.hasPrefix("notifyd: \(reason)"), "\(outcome)")
            #expect(status != 64 || outcome.errors.split(separator: "\n").count == 1, "\(outcome)")
        }
        let help = try await run(["--help"])
        #expect(help.status == 0 && help.lines.first?.hasPrefix("usage: notifyd") == true)
    }
}
