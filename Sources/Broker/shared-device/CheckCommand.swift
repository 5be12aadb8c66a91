import ArgumentParser
import Basics
import CommandParts
import DeviceConfiguration
import Dispatch
import FoundationEssentials
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
@_spi(Extensions) import SharedDeviceTestKit

struct CheckCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "check",
        abstract: "Checks that apps clean up after a sign-out, on a private test device.",
        discussion: """
            Starts a private bus, a broker and the apps of the plan; does its steps and looks whether its expectations hold. \
            Touches nothing of this device, and leaves nothing behind, also if it is interrupted. Progress goes to standard error, \
            a table to standard output. The plan's format is in Documentation/CheckPlan.md.
            Looks for shared-device-broker beside this program, in $SHARED_DEVICE_PROGRAMS and in PATH.
            Exit status: 0 all holds; 1 an expectation fails, a step could not be done, or every app is left out; 64 wrong usage; 65 the plan is wrong; \
            66 the plan or a program of an app is not there; 69 bus or broker do not start; 73 a report cannot be written.
            """
    )

    @Argument(help: ArgumentHelp("The plan, a JSON file; - for standard input.", valueName: "plan.json"))
    var plan: String

    @Option(help: ArgumentHelp("Write the result as JUnit XML.", valueName: "file"))
    var junit: String?

    @Option(
        help: ArgumentHelp("Write the result as JSON; - for standard output, instead of the table.", valueName: "file")
    )
    var json: String?

    @Option(help: ArgumentHelp("Write the result as a page with timelines.", valueName: "file"))
    var html: String?

    @Flag(help: "List the steps and all expectations, not only the failed expectations.")
    var verbose = false

    @Flag(help: "Keep the directory of the broker and the apps, and print its path.")
    var keep = false

    func execute() throws {
        Interruption.handle(by: "shared-device")
        let plan = try readPlan()
        for file in files { try file.checkPlace() }
        let directory = keep ? try keptDirectory() : nil
        let progress = ProgressLine("shared-device")
        let runner = CheckRunner(plan, directory: directory) { progress.show($0) }
        defer { progress.clear() }
        // Processes started by an app may outlive it, such as the program of an adapter.
        defer { Interruption.endDescendants() }
        let result = try Self.run(runner)
        progress.clear()
        if let directory { warn("all of it is in \(directory)") }
        for file in files { try file.write(result) }
        try write(result)
        guard result.holds else { throw ExitCode.failure }
    }

    // MARK: Input and output

    private func readPlan() throws -> CheckPlan {
        let content: Data
        do {
            content = plan == "-" ? Self.standardInput() : try Data(contentsOf: URL(fileURLWithPath: plan))
        } catch {
            throw CommandFailure(EX_NOINPUT, "cannot read the plan \(plan): \(systemReason(error))")
        }
        do throws(CheckPlanError) {
            let directory = URL(fileURLWithPath: plan == "-" ? "x" : plan).deletingLastPathComponent().path
            return try CheckPlan(json: content).relative(to: directory)
        } catch {
            throw CommandFailure(EX_DATAERR, "\(plan): \(error)")
        }
    }

    private static func standardInput() -> Data {
        var content = ""
        while let line = readLine(strippingNewline: false) { content += line }
        return Data(content.utf8)
    }

    private func keptDirectory() throws -> String {
        let path = FileManager.default.temporaryDirectory.path + "/shared-device-check-\(UUID().uuidString.prefix(8))"
        do {
            try FileManager.default.createDirectory(
                atPath: path,
                withIntermediateDirectories: false,
                attributes: [.posixPermissions: 0o700]
            )
        } catch {
            let reason = systemReason(error)
            throw CommandFailure(EX_CANTCREAT, "cannot make \(path): \(reason); name another place in TMPDIR")
        }
        return path
    }

    private func write(_ result: CheckResult) throws {
        let note = html.map { "timeline: \($0)" }
        let text =
            json == "-" ? try result.json : result.text(inColor: Terminal.isColoured, isVerbose: verbose, note: note)
        let code = writeAll(text, to: STDOUT_FILENO)
        guard code == 0 else {
            throw CommandFailure(EX_IOERR, "cannot write the result: \(String(cString: strerror(code)))")
        }
    }

    private var files: [ReportFile] {
        [
            junit.map { ReportFile(path: $0) { $0.junit } },
            json.flatMap { $0 == "-" ? nil : ReportFile(path: $0) { try $0.json } },
            html.map { ReportFile(path: $0) { $0.html } },
        ].compactMap(\.self)
    }

    private static func run(_ runner: CheckRunner) throws -> CheckResult {
        do {
            return try OtherThreads.run { try await runner.run() }
        } catch let error as TestDeviceError {
            let status = error.code == .programMissing ? EX_NOINPUT : EX_UNAVAILABLE
            throw CommandFailure(status, "\(error)")
        }
    }
}

private struct ReportFile {
    let path: String
    let content: (CheckResult) throws -> String

    /// Verifies early that the file can be written, because the check may take minutes.
    func checkPlace() throws(CommandFailure) {
        let folder = URL(fileURLWithPath: path).deletingLastPathComponent().path
        var isDirectory = false
        if FileManager.default.fileExists(atPath: path, isDirectory: &isDirectory), isDirectory {
            throw failure("it is a folder; name a file in it")
        }
        // The file is replaced by a rename, so its folder has to be writable.
        guard access(folder, W_OK | X_OK) == 0 else {
            let reason = String(cString: strerror(errno))
            throw failure("\(folder): \(reason); name a file in a folder that you may write to")
        }
    }

    func write(_ result: CheckResult) throws {
        do {
            try Data(content(result).utf8).write(to: URL(fileURLWithPath: path), options: .atomic)
        } catch {
            throw failure(systemReason(error))
        }
    }

    private func failure(_ reason: String) -> CommandFailure {
        CommandFailure(EX_CANTCREAT, "cannot write \(path): \(reason)")
    }
}
