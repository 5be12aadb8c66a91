import Foundation
@_spi(Extensions) import NotifyCenterTestKit
import Testing

@Suite("Random schedules of sign-ins, kills, restarts, hostile clients and full disks", .serialized)
struct TortureTests {
    /// An integer that `make torture` sets.
    private static func setting(_ name: String) -> Int? {
        ProcessInfo.processInfo.environment["TORTURE_\(name)"].flatMap { Int($0) }
    }

    @Test("an ended session's data stays only while its cleanup is owed, which ends")
    func torture() async throws {
        // Only for `make torture`: other tests in the same process must not be ended by this one.
        if Self.setting("SCHEDULES") != nil { Interruption.handle(by: "torture", adoptsOrphans: false) }
        var torture = Torture()
        torture.schedules = Self.setting("SCHEDULES") ?? torture.schedules
        torture.seed = Self.setting("SEED").map { UInt64(bitPattern: Int64($0)) } ?? torture.seed
        torture.repeats = Self.setting("REPEAT") ?? torture.repeats
        torture.jobs = max(1, Self.setting("JOBS") ?? torture.jobs)
        torture.shrinks = Self.setting("SHRINK") == 1
        torture.progress = { print("torture: \($0)") }
        print("torture: \(torture.schedules) schedules from seed \(torture.seed), \(torture.jobs) devices at a time")
        for what in Rights.leftOut { print("torture: without \(what)") }
        let result = await torture.run()
        print("torture: \(result.done) done, \(result.failures.count) failures")
        for (what, count) in result.counts.sorted(by: { $0.key < $1.key }) { print("torture:   \(what): \(count)") }
        for failure in result.failures { Issue.record("\(failure)") }
        #expect(result.done == torture.schedules * torture.repeats)
        // A program that cannot start writes no files, and would hide any mistake of its adapter.
        if torture.schedules >= 20 { #expect(result.counts[Runner.looksAtFiles] ?? 0 > 0) }
    }

    /// The mistakes of `Mutant` in the app and one of the adapter's program. Each has a seed shortly before a seed that
    /// detects it. The app does not start with an unknown name.
    static let mutants: [(name: String, seed: UInt64)] = [
        ("reports-before-deleting", 1), ("forgets-debts", 1), ("keeps-screen", 1), ("works-on", 1),
        ("spares-returning-user", 136), ("cleans-for-nobody-only", 22),
        (AdapterProcess.hidingMutant, 1),
    ]

    @Test("each mistake of an app is detected", arguments: mutants)
    func finds(mutant: String, seed: UInt64) async throws {
        var torture = Torture()
        torture.seed = seed
        // Most mistakes are detected within ten schedules. Some depend on timing.
        torture.schedules = 1000
        torture.mutant = mutant
        torture.enoughFailures = 1
        let result = await torture.run()
        let failure = try #require(result.failures.first, "\(result.done) schedules without a finding")
        print("torture: \(mutant) is found by seed \(failure.seed), after \(result.done) schedules")
        #expect(failure.isViolation, "\(failure)")
        let schedule = Schedule(seed: failure.seed)
        #expect(failure.description.contains("\(schedule)"))
        #expect(failure.description.contains("make torture SEED=\(failure.seed) SCHEDULES=1"))
    }

    @Test("a failure is reproduced without the steps that it does not need")
    func shrinks() async throws {
        let steps: [Step] = [
            .ask(app: 2), .signIn(app: 0, user: "ada", patience: 0), .untilAnswered, .untilShown,
            .signOut(app: 1, user: "ada"), .untilAnswered, .untilCleaned,
        ]
        var torture = Torture()
        torture.mutant = "reports-before-deleting"
        torture.attempts = 3
        let whole = Torture.Failure(seed: 0, reason: "", isViolation: true, description: "")
        let failure = await torture.shrink(Schedule(seed: 0, isStrict: false, steps: steps), whole)
        #expect(failure.isViolation)
        #expect(failure.description.contains("signIn(app: 0"))
        #expect(!failure.description.contains("ask(app: 2"))
    }
}
