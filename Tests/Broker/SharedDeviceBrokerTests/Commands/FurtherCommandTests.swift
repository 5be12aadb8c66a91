import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Testing

/// Runs a copy of the command, in a folder with programs that the test writes.
@Suite("Commands of other packages")
struct FurtherCommandTests {
    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory("further-commands")
        try FileManager.default.copyItem(atPath: Program.sharedDevice.path, toPath: directory.path + "/shared-device")
    }

    /// Writes a program that prints its name and arguments, and exits with 3.
    private func writeProgram(_ name: String, permissions: mode_t = 0o755) throws {
        let path = try directory.writeScript(name, #"echo "${0##*/} $*"; exit 3"#)
        chmod(path, permissions)
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

    @Test("a program in the same folder gets the arguments, sets the status and has help")
    func runs() async throws {
        try writeProgram("shared-device-greet")
        let outcome = try await run("greet", "--name", "Ada Lovelace")
        #expect(outcome.status == 3)
        #expect(outcome.lines == ["shared-device-greet --name Ada Lovelace"])
        #expect(try await run("help", "greet").lines == ["shared-device-greet --help"])
        #expect(try await run("help", "greet", "twice").lines == ["shared-device-greet twice --help"])
        try writeProgram("shared-device-broken", permissions: 0o644)
        try writeProgram("shared-device-greet.old")
        let text = try await run("--help").lines.joined(separator: "\n")
        #expect(text.contains("The programs beside this one are commands, too: greet."), "\(text)")
    }

    @Test("a service, a built-in command's name and other folders' programs do not run")
    func refuses() async throws {
        for folder in ["path", "shared-device-sub"] { mkdir("\(directory.path)/\(folder)", 0o755) }
        for program in [
            "path/shared-device-elsewhere", "greet", "shared-device-status", "shared-device---version",
            "shared-device-sub/tool", "shared-device-", "shared-device-broker",
        ] { try writeProgram(program) }
        try writeProgram("shared-device-broken", permissions: 0o644)
        for name in ["elsewhere", "../greet", "status", "--version", "sub/tool", "broken", "broker", ""] {
            let (status, lines, _) = try await run(name, "--state", "/nonexistent")
            let hasRun = status == 3 || lines.contains { $0.hasPrefix("shared-device-") || $0.hasPrefix("greet") }
            #expect(!hasRun, "\(name): \(lines)")
        }
    }
}
