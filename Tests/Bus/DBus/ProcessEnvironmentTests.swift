import FoundationEssentials
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Testing

@testable import DBus

@Suite("The environment of a process")
struct ProcessEnvironmentTests {
    /// A set-user-ID copy of the probe that belongs to root, and a program that its caller would like to run as root.
    private struct PrivilegedProbe {
        let directory = try! TemporaryDirectory("notify-center-privileged")
        var program: String { "\(directory.path)/program" }
        var proof: String { "\(directory.path)/proof" }
        private var probe: String { "\(directory.path)/probe" }

        init() throws {
            chmod(directory.path, 0o755)
            try FileManager.default.copyItem(atPath: ChildProcess.built("bus-probe"), toPath: probe)
            chmod(probe, 0o4755)
            try "#!/bin/sh\necho >\(proof)\n".write(toFile: program, atomically: true, encoding: .utf8)
            chmod(program, 0o755)
        }

        /// Runs the probe as an unprivileged user and returns its output.
        func run(_ arguments: [String], environment: [String: String]) async throws -> String {
            let process = try ChildProcess(as: 65534, probe, arguments + ["1"], environment: environment)
            return try await process.line { _ in true }
        }
    }

    private static let noBus = "could not find the session bus: this process has more rights than its user"
    private static let noProgram = "a process with more rights than its user starts no program to reach a bus"

    /// The probe's bus and command, the variable that its caller sets and its value, and the output. “PROGRAM” stands
    /// for the program, and “DIRECTORY” for its directory.
    private static let cases: [(String, String, String, String, String)] = [
        // The caller names the session bus.
        ("environment", "connect", "NOTIFY_CENTER_BUS", "unixexec:path=PROGRAM", noBus),
        ("environment", "connect", "DBUS_SESSION_BUS_ADDRESS", "unixexec:path=PROGRAM", noBus),
        ("environment", "connect", "XDG_RUNTIME_DIR", "DIRECTORY", noBus),
        // The caller names the system bus.
        ("system", "connect", "DBUS_SYSTEM_BUS_ADDRESS", "unixexec:path=PROGRAM", ""),
        // An address starts a program.
        ("unixexec:path=PROGRAM", "connect", "LANG", "C", noProgram),
        ("unix:path=/nonexistent;unixexec:path=PROGRAM", "connect", "LANG", "C", noProgram),
        ("unix:path=/nonexistent;unixexec:\u{301}=a,path=PROGRAM", "connect", "LANG", "C", "characters beyond ASCII"),
        ("autolaunch:", "connect", "LANG", "C", "this library starts none"),
        // The probe starts a program by its name, which the caller's PATH looks up in the caller's directory.
        ("environment", "start", "PATH", "DIRECTORY", "did not start"),
    ]

    @Test(
        "a set-user-ID program takes no bus and starts no program of its caller",
        .enabled(if: geteuid() == 0, "only root can give its rights to others")
    )
    func settingsOfCaller() async throws {
        let none = ["NOTIFY_CENTER_BUS": "", "DBUS_SESSION_BUS_ADDRESS": "", "XDG_RUNTIME_DIR": ""]
        let privileged = try PrivilegedProbe()
        func named(_ text: String) -> String {
            text.replacing("PROGRAM", with: privileged.program)
                .replacing("DIRECTORY", with: privileged.directory.path)
        }
        for (bus, command, variable, value, output) in Self.cases {
            let environment = none.merging([variable: named(value)]) { $1 }
            let said = try await privileged.run([named(bus), command], environment: environment)
            #expect(said.contains(output) || output.isEmpty, "\(bus) \(command) \(variable): \(said)")
            let isStarted = FileManager.default.fileExists(atPath: privileged.proof)
            #expect(!isStarted, "\(bus) \(command) \(variable)")
        }
    }

    @Test("a process that changes its environment reconnects to its original bus")
    func changedEnvironment() async throws {
        let bus = try PrivateBus()
        let probe = try ChildProcess(
            ChildProcess.built("bus-probe"),
            ["environment", "change-environment", "1"],
            environment: [Bus.environmentVariable: "session", "DBUS_SESSION_BUS_ADDRESS": bus.address]
        )
        try await probe.line { $0 == "changed" }
        try bus.restart()
        try await probe.line { $0 == "restored" }
    }
}
