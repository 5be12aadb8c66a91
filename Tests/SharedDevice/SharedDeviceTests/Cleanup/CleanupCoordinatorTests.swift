import Foundation
@_spi(Extensions) import NotifyCenterTestKit
import Testing

@_spi(Extensions) @testable import SharedDevice

@Suite("A cleanup in steps")
struct CleanupCoordinatorTests {
    private let account = Account(identifier: "1.t", username: "one")
    private let directory: TemporaryDirectory
    private let log = Log()

    init() throws { directory = try TemporaryDirectory("cleanup-test") }

    private var change: AccountChange { AccountChange(previous: [(account, 1)], current: nil, epoch: 2) }
    private var journal: String { "\(directory.path)/state/shared-device-cleanup.json" }

    private func coordinator(_ steps: [String], failing: [String] = []) throws -> CleanupCoordinator {
        var options = CleanupCoordinator.Options()
        options.pause = .zero
        let coordinator = CleanupCoordinator(options: options)
        for step in steps {
            try coordinator.register(step) { [log] cleanup in
                log.add("\(step) of \(cleanup.accounts.map(\.username))")
                if failing.contains(step) { throw DeviceOnPrivateBus.Unexpected(description: "jammed") }
                return "1 \(step)"
            }
        }
        return coordinator
    }

    private func reporter(refuses: Bool = false) -> LoggingReporter {
        LoggingReporter(stateDirectory: "\(directory.path)/state", log: log, refuses: refuses)
    }

    @Test("every step runs once, and only a refused report is repeated")
    func done() async throws {
        let coordinator = try coordinator(["orders", "photos"])
        for name in ["", "orders"] {
            let error = #expect(throws: SharedDeviceError.self, "\(name)") { try coordinator.register(name) { _ in } }
            #expect(error?.code == .invalidRequest, "\(name)")
        }
        let refusing = reporter(refuses: true)
        let error = await #expect(throws: CleanupFailure.self) { try await coordinator.run(change, reporter: refusing) }
        #expect(error?.report?.code == .brokerUnavailable && error?.steps == [])
        let summary = try await coordinator.run(change, reporter: reporter())
        #expect("\(summary)" == "2 steps: orders (1 orders), photos (1 photos)")
        // On a busy machine it is long enough for the report that it has begun.
        let lines = log.lines.filter { $0 != "begun" }
        #expect(lines == ["orders of [\"one\"]", "photos of [\"one\"]", "done \(summary)"])
        #expect(!FileManager.default.fileExists(atPath: journal))
    }

    @Test("a failed step is named in the error and the report, and the later steps run")
    func failed() async throws {
        let broken = try coordinator(["orders", "photos"], failing: ["orders"])
        let error = await #expect(throws: CleanupFailure.self) { try await broken.run(change, reporter: reporter()) }
        #expect("\(try #require(error))" == "“orders” failed: jammed")
        #expect(log.lines.last == "failed “orders” failed: jammed" && log.lines.contains("photos of [\"one\"]"))
    }

    @Test("the journal has no names, and without a usable one every step runs")
    func unusableJournal() async throws {
        let broken = try coordinator(["orders", "photos"], failing: ["photos"])
        _ = try? await broken.run(change, reporter: reporter())
        let text = try String(contentsOfFile: journal, encoding: .utf8)
        #expect(text.contains("orders") && !text.contains("\"one\""))
        try "{".write(toFile: journal, atomically: true, encoding: .utf8)
        try await coordinator(["orders", "photos"]).run(change, reporter: reporter())
        #expect(log.lines.filter { $0.hasPrefix("orders") }.count == 2)
        // A file in place of the directory, because permissions would not stop root.
        try FileManager.default.removeItem(atPath: "\(directory.path)/state")
        try "".write(toFile: "\(directory.path)/state", atomically: true, encoding: .utf8)
        let summary = try await coordinator(["orders", "photos"]).run(change, reporter: reporter())
        #expect(summary.journalProblem != nil && log.lines.last?.contains("the journal was not kept") == true)
        #expect(log.lines.filter { $0.hasPrefix("orders") }.count == 3)
    }

    @Test("only one cleanup runs at a time")
    func inTurn() async throws {
        let coordinator = CleanupCoordinator()
        try coordinator.register("orders") { [log] _ in
            log.add("in")
            await Task.yield()
            log.add("out")
        }
        let (change, reporter) = (change, reporter())
        await withTaskGroup { group in
            for _ in 0..<8 { group.addTask { _ = try? await coordinator.run(change, reporter: reporter) } }
        }
        let lines = log.lines.filter { ["in", "out"].contains($0) }
        #expect(lines == (0..<8).flatMap { _ in ["in", "out"] })
    }

    // The removed file proves that the step ran; the log shows the number of runs.
    @Test(
        "after a kill, data is deleted before the report, and no noted step runs again",
        arguments: [
            ("within one", []), ("before two", ["one"]), ("after two", ["one"]),
            ("before done", ["one", "two", "three"]), ("after done", ["one", "two", "three"]),
        ] as [(String, [String])]
    )
    func killed(point: String, finished: [String]) async throws {
        let (data, names) = (try directory.folder("data"), ["one", "two", "three"])
        for name in names { try "x".write(toFile: "\(data)/\(name)", atomically: true, encoding: .utf8) }
        func run(_ arguments: String...) async throws -> Int32 {
            let program = ChildProcess.built("listener-app")
            return try await ChildProcess(program, ["steps", directory.path] + arguments).exitStatus()
        }
        func lines() -> [String] {
            let text = (try? String(contentsOfFile: "\(directory.path)/log", encoding: .utf8)) ?? ""
            return text.split(separator: "\n").map(String.init)
        }
        #expect(try await run(point) == 128 + SIGKILL)
        let before = lines()
        #expect(before.filter { $0.hasPrefix("done") }.count == (point == "after done" ? 1 : 0))
        #expect(try await run() == 0)
        let after = lines().dropFirst(before.count)
        for name in finished { #expect(!after.contains("step \(name)")) }
        for name in names {
            #expect((before + after).contains("step \(name)"))
            #expect(!FileManager.default.fileExists(atPath: "\(data)/\(name)"))
        }
        let report = "done, 0 left: 3 steps: one (1 file), two (1 file), three (1 file)"
        #expect(after.filter { $0.hasPrefix("done") } == [report])
        #expect(!FileManager.default.fileExists(atPath: journal))
    }
}

private struct LoggingReporter: CleanupReporting {
    let stateDirectory: String
    let log: Log
    let refuses: Bool

    func cleanupBegan(_ change: AccountChange) async throws(SharedDeviceError) { log.add("begun") }

    func cleanupDone(_ change: AccountChange, detail: String?, took: Duration?) async throws(SharedDeviceError) {
        if refuses { throw SharedDeviceError(.brokerUnavailable, attempted: "report", message: "away") }
        log.add("done \(detail ?? "")")
    }

    func cleanupFailed(_ change: AccountChange, reason: String) async throws(SharedDeviceError) {
        log.add("failed \(reason)")
    }
}
