import Basics
import Testing

@_spi(Extensions) @testable import SharedDevice

@Suite("The plan of a cleanup")
struct CleanupPlanTests {
    private let steps = ["screen", "orders", "photos"]
    private let ada = CleanupJournal.Session(account: "ada", epoch: 1)
    private let grace = CleanupJournal.Session(account: "grace", epoch: 3)

    private func plan(
        _ steps: [String]? = nil,
        journal: CleanupJournal? = nil,
        failures: [CleanupFailure.Step] = []
    ) -> CleanupPlan {
        CleanupPlan(steps: steps ?? self.steps, sessions: [ada], journal: journal, attempts: 2, failures: failures)
    }

    /// Follows the plan for at most `count` events, each of which may be the last before a crash. A step in `flaky`
    /// fails at its first attempt. Returns the events and the journal on disk.
    private func run(
        _ plan: CleanupPlan,
        events count: Int = .max,
        flaky: Set<String> = [],
        broken: Set<String> = []
    ) -> (done: [String], journal: CleanupJournal, isOver: Bool) {
        var plan = plan
        var done: [String] = []
        var saved = plan.journal
        while true {
            if done.count == count { return (done, saved, false) }
            switch plan.next {
            case .run(let step, let attempt):
                if broken.contains(step) || (flaky.contains(step) && attempt == 1) {
                    done.append("\(step) fails")
                    plan.failed("jammed")
                } else {
                    done.append(step)
                    plan.succeeded("1 \(step)")
                    // The crash may happen between a step and its note.
                    if done.count == count { return (done, saved, false) }
                    saved = plan.journal
                    done.append("note")
                }
            case .reportDone:
                done.append("done")
                return (done, saved, true)
            case .fail(let failures):
                done.append("failed: " + failures.map { "\($0.name) \($0.reason)" }.joined(separator: ", "))
                return (done, saved, true)
            }
        }
    }

    @Test("the steps run in order, each is noted before the next, and the summary has all")
    func order() {
        let result = run(plan())
        #expect(result.done == ["screen", "note", "orders", "note", "photos", "note", "done"])
        #expect(result.journal.finished.map(\.step) == steps)
        #expect(plan([]).next == .reportDone && "\(plan([]).summary)" == "0 steps")
        // Also the steps from before a crash.
        var journal = CleanupJournal(sessions: [ada])
        journal.finish("orders", result: "12 rows")
        var later = plan(journal: journal)
        later.succeeded(nil)
        later.succeeded("3 files")
        #expect("\(later.summary)" == "3 steps: screen, orders (12 rows), photos (3 files)")
    }

    @Test("a failed step is retried, the later steps still run, and it is not done")
    func failures() {
        let flaky = run(plan(), flaky: ["orders"]).done
        #expect(flaky == ["screen", "note", "orders fails", "orders", "note", "photos", "note", "done"])
        let broken = run(plan(), broken: ["screen", "orders"])
        #expect(
            broken.done == [
                "screen fails", "screen fails", "orders fails", "orders fails", "photos", "note",
                "failed: screen jammed, orders jammed",
            ]
        )
        let next = run(plan(journal: broken.journal))
        #expect(next.done == ["screen", "note", "orders", "note", "done"])
        // A failure before the first step prevents the report but no step.
        let before = run(plan(failures: [CleanupFailure.Step(name: "window", reason: "stuck")]))
        #expect(before.done == ["screen", "note", "orders", "note", "photos", "note", "failed: window stuck"])
    }

    @Test("after crashes at any two events, every step runs, and no noted step runs again")
    func crashAnywhere() {
        let whole = run(plan(), flaky: ["orders"]).done.count
        for first in 0..<whole {
            let before = run(plan(), events: first, flaky: ["orders"])
            #expect(!before.isOver)
            for second in 0...whole {
                let between = run(plan(journal: before.journal), events: second)
                let after = run(plan(journal: between.journal))
                let noted = Set(before.journal.finished.map(\.step))
                #expect(noted.isDisjoint(with: between.done + after.done), "\(first), \(second)")
                let done = before.done + between.done + after.done
                #expect(steps.allSatisfy(done.contains), "\(first), \(second)")
                #expect(after.done.last == "done" && after.journal.finished.map(\.step) == steps)
            }
        }
    }

    @Test("a journal counts only for its sessions and the steps that it contains")
    func otherJournals() {
        var journal = CleanupJournal(sessions: [grace])
        journal.finish("screen", result: nil)
        #expect(plan(journal: journal).next == .run("screen", attempt: 1))
        journal = CleanupJournal(sessions: [ada, grace])
        journal.finish("screen", result: nil)
        #expect(plan(journal: journal).next == .run("orders", attempt: 1))
        // Another user also has data, so every step has to run.
        let both = CleanupPlan(steps: steps, sessions: [ada, grace], journal: run(plan()).journal, attempts: 1)
        #expect(both.next == .run("screen", attempt: 1))
        let again = CleanupJournal.Session(account: "ada", epoch: 5)
        let later = CleanupPlan(steps: steps, sessions: [again], journal: run(plan()).journal, attempts: 1)
        #expect(later.next == .run("screen", attempt: 1))
        // After an update there are other steps.
        let partial = run(plan(), events: 4).journal
        #expect(partial.finished.map(\.step) == ["screen", "orders"])
        let done = run(plan(["database", "screen", "photos", "cache"], journal: partial)).done
        #expect(done == ["database", "note", "photos", "note", "cache", "note", "done"])
    }

    @Test("the waits between passes double up to a limit and restart after a success")
    func backoff() {
        var backoff = Backoff(first: .seconds(1), longest: .seconds(60))
        let waits = (0..<8).map { _ in backoff.next() }
        #expect(waits == [1, 2, 4, 8, 16, 32, 60, 60].map { .seconds($0) })
        backoff.reset()
        let wait = backoff.next()
        #expect(wait == .seconds(1))
    }
}
