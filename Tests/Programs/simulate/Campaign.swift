import Foundation
import Synchronization

package struct Outcome: Sendable {
    package let seed: UInt64
    /// The broken promise; `nil` if all promises were kept.
    package let violation: String?
    package let kind: String
    package let steps: Int
}

extension SimulatedSchedule {
    package func play(mutant: Mutant? = nil, trace: ((String) -> Void)? = nil) -> Outcome {
        let world = World(seed: seed, mutant: mutant, hasManyUsers: hasManyUsers, trace: trace)
        world.begin(file)
        for step in steps where world.violation == nil { world.run(step) }
        if world.violation == nil { world.heal() }
        return Outcome(seed: seed, violation: world.violation, kind: world.oracle.kind, steps: world.steps)
    }

    /// The schedule without the steps that the failure does not need.
    package func shrunk(mutant: Mutant? = nil) -> SimulatedSchedule {
        let kind = play(mutant: mutant).kind
        var best = self
        func fails(_ candidate: SimulatedSchedule) -> Bool { candidate.play(mutant: mutant).kind == kind }
        var size = max(1, steps.count / 2)
        while size > 0 {
            var index = 0
            var hasShrunk = false
            while index < best.steps.count {
                var candidate = best
                candidate.steps.removeSubrange(index..<min(index + size, best.steps.count))
                if fails(candidate) {
                    best = candidate
                    hasShrunk = true
                } else {
                    index += size
                }
            }
            if size == 1, hasShrunk { continue }
            size /= 2
        }
        for index in best.steps.indices {
            for progress in [0, 1, 2, 4, 8] where progress < best.steps[index].progress {
                var candidate = best
                candidate.steps[index].progress = progress
                if fails(candidate) {
                    best = candidate
                    break
                }
            }
        }
        return best
    }

    package var stepCount: Int { steps.count }

    package var text: String {
        let lines = steps.enumerated().map { "  \($0 + 1). \($1)" }
        return (["seed \(seed), configuration \(file)\(hasManyUsers ? ", many users" : "")"] + lines).joined(
            separator: "\n"
        )
    }
}

package struct Campaign: Sendable {
    package var seed: UInt64
    package var schedules: Int
    package var jobs: Int
    package var mutant: Mutant?
    /// Receives the number of schedules played so far.
    package var progress: @Sendable (Int) -> Void = { _ in }

    package init(seed: UInt64 = 1, schedules: Int, jobs: Int = 1, mutant: Mutant? = nil) {
        self.seed = seed
        self.schedules = schedules
        self.jobs = jobs
        self.mutant = mutant
    }

    package struct Result: Sendable {
        package var played = 0
        package var steps = 0
        package var failures: [Outcome] = []
    }

    private final class Board: Sendable {
        let next = Atomic(0)
        let played = Atomic(0)
        let result = Mutex(Result())
    }

    package func run() -> Result {
        let board = Board()
        DispatchQueue.concurrentPerform(iterations: max(1, jobs)) { _ in work(board) }
        var result = board.result.withLock { $0 }
        result.failures.sort { $0.seed < $1.seed }
        return result
    }

    private func work(_ board: Board) {
        var own = Result()
        while true {
            let index = board.next.add(1, ordering: .relaxed).oldValue
            guard index < schedules else { break }
            let outcome = SimulatedSchedule(seed: seed &+ UInt64(index)).play(mutant: mutant)
            own.played += 1
            own.steps += outcome.steps
            if outcome.violation != nil {
                own.failures.append(outcome)
                board.next.store(schedules, ordering: .relaxed)
            }
            progress(board.played.add(1, ordering: .relaxed).newValue)
        }
        board.result.withLock { result in
            result.played += own.played
            result.steps += own.steps
            result.failures += own.failures
        }
    }
}
