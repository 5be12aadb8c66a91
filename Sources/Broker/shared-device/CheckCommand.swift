import ArgumentParser
import Dispatch
import Foundation
import Glibc
import SharedDeviceTestKit
import Synchronization

struct CheckCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "check",
        abstract: "Checks that apps clean up after a sign-out, on a device of its own.",
        discussion: """
            Starts a private bus, a broker and the apps of the plan; does its steps and looks whether its expectations hold. \
            Touches nothing of this device. Progress goes to standard error, a table to standard output. The plan's format is \
            in Documentation/CheckPlan.md.
            Looks for shared-device-broker beside this program, in $SHARED_DEVICE_PROGRAMS and in PATH.
            Exit status: 0 all holds; 1 an expectation fails or a step could not be done; 64 wrong usage; 65 the plan is wrong; \
            66 the plan or a program of an app is not there; 69 bus or broker do not start; 73 a report cannot be written.
            """
    )

    @Argument(help: ArgumentHelp("The plan, a JSON file; - for standard input.", valueName: "plan.json"))
    var plan: String

    @Option(help: ArgumentHelp("Write the result as JUnit XML.", valueName: "file"))
    var junit: String?

    @Option(
        help: ArgumentHelp("Write the result as JSON; - for standard output, in the table's place.", valueName: "file")
    )
    var json: String?

    @Option(help: ArgumentHelp("Write the result as a page with timelines.", valueName: "file"))
    var html: String?

    @Flag(help: "Leave the directory of broker and apps behind, and say where it is.")
    var keep = false

    func run() throws {
        try reportingFailure {
            let plan = try readPlan()
            let directory = keep ? try keptDirectory() : nil
            let runner = CheckRunner(plan, directory: directory) { warn($0) }
            let result = try Self.run(runner)
            if let directory { warn("all of it is in \(directory)") }
            try write(result)
            guard result.holds else { throw ExitCode.failure }
        }
    }

    // MARK: Input and output

    private func readPlan() throws -> CheckPlan {
        let content: Data
        do {
            content =
                plan == "-"
                ? try FileHandle.standardInput.readToEnd() ?? Data()
                : try Data(contentsOf: URL(fileURLWithPath: plan))
        } catch {
            throw CommandFailure(
                status: EX_NOINPUT,
                description: "cannot read the plan \(plan): \(error.localizedDescription)"
            )
        }
        do throws(CheckPlanError) {
            let directory = URL(fileURLWithPath: plan == "-" ? "x" : plan).deletingLastPathComponent().path
            return try CheckPlan(json: content).relative(to: directory)
        } catch {
            throw CommandFailure(status: EX_DATAERR, description: "\(plan): \(error)")
        }
    }

    private func keptDirectory() throws -> String {
        let path = NSTemporaryDirectory() + "shared-device-check-\(UUID().uuidString.prefix(8))"
        do {
            try FileManager.default.createDirectory(
                atPath: path,
                withIntermediateDirectories: true,
                attributes: [.posixPermissions: 0o700]
            )
        } catch {
            throw CommandFailure(
                status: EX_CANTCREAT,
                description: "cannot make \(path): \(error.localizedDescription)"
            )
        }
        return path
    }

    private func write(_ result: CheckResult) throws {
        let text = json == "-" ? try result.json : result.text(inColor: Self.isColourful)
        try FileHandle.standardOutput.write(contentsOf: Data(text.utf8))
        let files = [(junit, result.junit), (json == "-" ? nil : json, try result.json), (html, result.html)]
        for case (let path?, let text) in files {
            do {
                try Data(text.utf8).write(to: URL(fileURLWithPath: path), options: .atomic)
            } catch {
                throw CommandFailure(
                    status: EX_CANTCREAT,
                    description: "cannot write \(path): \(error.localizedDescription)"
                )
            }
        }
    }

    /// Whether the output goes to a terminal that shows colours.
    private static var isColourful: Bool {
        let environment = ProcessInfo.processInfo.environment
        return isatty(STDOUT_FILENO) != 0 && (environment["NO_COLOR"] ?? "").isEmpty && environment["TERM"] != "dumb"
    }

    /// Runs the plan on other threads. A signal that would end the program ends the plan, and all processes of it.
    private static func run(_ runner: CheckRunner) throws -> CheckResult {
        var ending = sigset_t()
        sigemptyset(&ending)
        for signal in [SIGINT, SIGTERM, SIGHUP] { sigaddset(&ending, signal) }
        // Threads that start from here on leave the signals to this one; processes start with none blocked.
        pthread_sigmask(SIG_BLOCK, &ending, nil)
        let outcome = Outcome()
        let done = DispatchSemaphore(value: 0)
        let task = Task {
            do throws(TestDeviceError) {
                let result = try await runner.run()
                outcome.value.withLock { $0 = .success(result) }
            } catch {
                outcome.value.withLock { $0 = .failure(error) }
            }
            done.signal()
        }
        var caught: Int32 = 0
        while done.wait(timeout: .now() + .milliseconds(50)) == .timedOut {
            var noTime = timespec()
            let signal = sigtimedwait(&ending, nil, &noTime)
            guard signal > 0 else { continue }
            caught = signal
            warn("ending, because of signal \(signal)")
            task.cancel()
        }
        if caught > 0 { throw ExitCode(128 + caught) }
        do {
            guard let result = try outcome.value.withLock({ $0 })?.get() else { throw ExitCode(EX_SOFTWARE) }
            return result
        } catch let error as TestDeviceError {
            let status = error.code == .programMissing ? EX_NOINPUT : EX_UNAVAILABLE
            throw CommandFailure(status: status, description: "\(error)")
        }
    }

    private final class Outcome: Sendable {
        let value = Mutex<Result<CheckResult, TestDeviceError>?>(nil)
    }
}
