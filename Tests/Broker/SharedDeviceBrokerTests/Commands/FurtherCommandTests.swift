import Foundation
@_spi(Extensions) import NotifyCenterTestKit
import Testing

/// Runs a copy of the command, in a folder with programs of the test's.
@Suite("Commands of other packages")
struct FurtherCommandTests {
    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory("further-commands")
        try FileManager.default.copyItem(atPath: Program.sharedDevice.path, toPath: directory.path + "/shared-device")
    }

    /// Writes a program that prints its name and arguments, and exits with 3.
    private func writeProgram(_ name: String, permissions: Int = 0o755) throws {
        let path = directory.path + "/" + name
        try #"""
        #!/bin/sh
        echo "${0##*/} $*"
        exit 3
        """#.write(toFile: path, atomically: true, encoding: .utf8)
        try FileManager.default.setAttributes([.posixPermissions: permissions], ofItemAtPath: path)
    }

    private func run(_ arguments: String...) async throws -> (status: Int32, lines: [String], errors: String) {
        let process = try ChildProcess(
            directory.path + "/shared-device",
            arguments,
            environment: ["PATH": "\(directory.path)/path:/usr/bin:/bin"]
        )
        let status = await process.exitStatus()
        _ = try? await process.line { _ in false }
        return (status, process.lines, process.errorText)
    }

    @Test("the program beside the command gets the arguments, and its status is returned")
    func runs() async throws {
        try writeProgram("shared-device-greet")
        let outcome = try await run("greet", "--name", "Ada Lovelace")
        #expect(outcome.status == 3)
        #expect(outcome.lines == ["shared-device-greet --name Ada Lovelace"])
        #expect(try await run("help", "greet").lines == ["shared-device-greet --help"])
        #expect(try await run("help", "greet", "twice").lines == ["shared-device-greet twice --help"])
    }

    @Test("the help lists the programs that can be run")
    func help() async throws {
        try writeProgram("shared-device-greet")
        try writeProgram("shared-device-broken", permissions: 0o644)
        try writeProgram("shared-device-greet.old")
        let text = try await run("--help").lines.joined(separator: "\n")
        #expect(text.contains("The programs beside this one are commands, too: greet."), "\(text)")
    }

    @Test(
        "only a program of that folder runs; no own command, no service",
        arguments: ["elsewhere", "../greet", "status", "--version", "sub/tool", "broken", "broker", ""]
    )
    func refuses(name: String) async throws {
        for folder in ["path", "shared-device-sub"] {
            try FileManager.default.createDirectory(
                atPath: "\(directory.path)/\(folder)",
                withIntermediateDirectories: false
            )
        }
        for program in [
            "path/shared-device-elsewhere", "greet", "shared-device-status", "shared-device---version",
            "shared-device-sub/tool", "shared-device-", "shared-device-broker",
        ] { try writeProgram(program) }
        try writeProgram("shared-device-broken", permissions: 0o644)
        let outcome = try await run(name, "--state", "/nonexistent")
        #expect(outcome.status != 3)
        #expect(!outcome.lines.contains { $0.hasPrefix("shared-device-") || $0.hasPrefix("greet") }, "\(outcome.lines)")
    }
}
