import Foundation
import NotifyCenter
import NotifyCenterTestKit
import Testing

// Rules, a.15, and the command line.
@Suite struct MaintenanceTests {
    private func run(_ arguments: [String], _ environment: [String: String] = [:]) async throws -> ChildProcess {
        let process = try ChildProcess(ChildProcess.built("notifyd"), arguments, environment: environment)
        _ = await process.exitStatus()
        // Waits for the rest of its output.
        _ = try? await process.line { _ in false }
        return process
    }

    @Test func aSignalMakesItWriteItsStatus() async throws {
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
    }

    @Test func theStatusFollowsNoLink() async throws {
        let daemon = try await Daemon()
        let victim = "\(daemon.directory.path)/victim"
        try "precious".write(toFile: victim, atomically: true, encoding: .utf8)
        symlink(victim, "\(daemon.directory.path)/notifyd_\(daemon.process.identifier).status")
        daemon.process.send(SIGUSR1)
        try await eventually { daemon.process.errorText.contains("could not write the status") }
        #expect(try String(contentsOfFile: victim, encoding: .utf8) == "precious")
    }

    @Test func theRunningOneTellsItsStatus() async throws {
        let daemon = try await Daemon()
        let status = try await run(["--status"], daemon.bus.environment)
        #expect(status.waitUntilExit() == 0)
        #expect(status.lines.first == "notifyd, process \(daemon.process.identifier)")
        daemon.process.send(SIGTERM)
        _ = await daemon.process.exitStatus()
        #expect(try await run(["--status"], daemon.bus.environment).waitUntilExit() == 69)
    }

    @Test func theConfigurationIsReadAgain() async throws {
        let daemon = try await Daemon(configuration: "set old 1\nset kept 1\n")
        let client = try Client(daemon.bus)
        try await client.set("kept", 2)
        try daemon.configure("set kept 9\nset new 3\nnonsense\n")
        daemon.process.send(SIGHUP)
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
        let file = "\(directory.path)/notify.conf"
        try "set a\nset b x\nhide c\n".write(toFile: file, atomically: true, encoding: .utf8)
        let bad = try await run(["--check-configuration", file])
        #expect(bad.waitUntilExit() == 65)
        let lines = bad.errorText.split(separator: "\n")
        #expect(lines.count == 2)
        #expect(
            lines.first?.hasPrefix("notifyd: \(file), line 2: “x” is not a state: “set b x”; write a number") == true
        )
        try "set a\n".write(toFile: file, atomically: true, encoding: .utf8)
        #expect(try await run(["--check-configuration", file]).waitUntilExit() == 0)
        #expect(try await run(["--check-configuration", "/nonexistent"]).waitUntilExit() == 66)
        // A path that even root cannot read.
        symlink("itself", "\(directory.path)/itself")
        #expect(try await run(["--check-configuration", "\(directory.path)/itself"]).waitUntilExit() == 66)
    }

    @Test func theShippedConfigurationIsValid() async throws {
        let file = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .appendingPathComponent("../../../../Packaging/system/notify.conf").standardizedFileURL.path
        let text = try String(contentsOfFile: file, encoding: .utf8)
        let (configuration, errors) = ConfigurationParser.parse(Array(text.utf8))
        #expect(errors.isEmpty)
        #expect(!configuration.monitors.isEmpty)
        #expect(!configuration.rules.isOpen(.write, "com.apple.system.timezone"))
    }

    @Test(arguments: [["--nonsense"], ["--address"], ["extra"]])
    func aWrongCommandLineIsRefused(_ arguments: [String]) async throws {
        let process = try await run(arguments)
        #expect(process.waitUntilExit() == 64)
        #expect(process.lines.isEmpty)
        #expect(process.errorText.split(separator: "\n").count == 1)
    }

    @Test func withoutABusItReportsThat() async throws {
        let process = try await run(["--address", "unix:path=/nonexistent"])
        #expect(process.waitUntilExit() == 69)
        #expect(process.errorText.hasPrefix("notifyd: could not connect to the bus at unix:path=/nonexistent"))
    }

    @Test func helpIsOnStandardOutput() async throws {
        let process = try await run(["--help"])
        #expect(process.waitUntilExit() == 0)
        #expect(process.lines.first?.hasPrefix("usage: notifyd") == true)
    }
}
