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
        func run(
            _ bus: String,
            _ command: String = "connect",
            environment: [String: String]
        ) async throws -> String {
            let process = try ChildProcess(as: 65534, probe, [bus, command, "1"], environment: environment)
            return try await process.line { _ in true }
        }
    }

    @Test(
        "a set-user-ID program takes no bus from its caller",
        .enabled(if: geteuid() == 0, "only root can give its rights to others"),
        arguments: ["NOTIFY_CENTER_BUS", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"]
    )
    func callersBus(_ variable: String) async throws {
        let privileged = try PrivilegedProbe()
        let none = ["NOTIFY_CENTER_BUS": "", "DBUS_SESSION_BUS_ADDRESS": "", "XDG_RUNTIME_DIR": ""]
        let value = variable == "XDG_RUNTIME_DIR" ? privileged.directory.path : "unixexec:path=\(privileged.program)"
        let said = try await privileged.run("environment", environment: none.merging([variable: value]) { $1 })
        #expect(said.contains("could not find the session bus: this process has more rights than its user"))
        #expect(!FileManager.default.fileExists(atPath: privileged.proof))
    }

    @Test(
        "a set-user-ID program takes no system bus from its caller",
        .enabled(if: geteuid() == 0, "only root can give its rights to others")
    )
    func callersSystemBus() async throws {
        let privileged = try PrivilegedProbe()
        _ = try await privileged.run(
            "system",
            environment: ["DBUS_SYSTEM_BUS_ADDRESS": "unixexec:path=\(privileged.program)"]
        )
        #expect(!FileManager.default.fileExists(atPath: privileged.proof))
    }

    @Test(
        "a set-user-ID program starts no program to reach a bus",
        .enabled(if: geteuid() == 0, "only root can give its rights to others"),
        arguments: ["unixexec:path=", "unix:path=/nonexistent;unixexec:path=", "autolaunch:"]
    )
    func programOfAddress(_ address: String) async throws {
        let privileged = try PrivilegedProbe()
        let target = address.hasSuffix("=") ? address + privileged.program : address
        let said = try await privileged.run(target, environment: [:])
        #expect(said.contains("a process with more rights than its user starts no program to reach a bus"))
        #expect(!FileManager.default.fileExists(atPath: privileged.proof))
    }

    @Test(
        "a set-user-ID program starts no program that its caller's PATH names",
        .enabled(if: geteuid() == 0, "only root can give its rights to others")
    )
    func callersPath() async throws {
        let privileged = try PrivilegedProbe()
        let said = try await privileged.run("environment", "start", environment: ["PATH": privileged.directory.path])
        #expect(said == "did not start")
        #expect(!FileManager.default.fileExists(atPath: privileged.proof))
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
