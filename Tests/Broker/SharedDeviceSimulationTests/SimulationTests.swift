import Testing
import simulate

@Suite("A simulated device: broker, apps, bus and disk on a simulated clock")
struct SimulationTests {
    @Test("all promises hold in all schedules")
    func promises() {
        let result = Campaign(seed: 1, schedules: 200).run()
        #expect(result.played == 200)
        #expect(result.failures.map { "seed \($0.seed): \($0.violation ?? "")" } == [])
    }

    @Test("the same seed gives the same schedule, which always runs the same way")
    func reproducible() {
        func trace(_ seed: UInt64) -> [String] {
            var lines: [String] = []
            _ = SimulatedSchedule(seed: seed).play { lines.append($0) }
            return lines
        }
        for seed in UInt64(1)...20 { #expect(trace(seed) == trace(seed)) }
        let texts = (UInt64(1)...50).map { SimulatedSchedule(seed: $0).text }
        #expect(Set(texts).count == 50)
    }

    @Test("a missing note of a sign-out is found, and its schedule shrinks to a few steps")
    func shrinks() throws {
        let mutant = Mutant.noteIsNotWritten
        let schedule = SimulatedSchedule(seed: mutant.exampleSeed)
        let failure = schedule.play(mutant: mutant)
        try #require(failure.violation != nil)
        let shrunk = schedule.shrunk(mutant: mutant)
        #expect(shrunk.stepCount < schedule.stepCount)
        #expect(shrunk.play(mutant: mutant).kind == failure.kind)
        #expect(shrunk.play().violation == nil, "without the mistake the same schedule goes well")
    }

    // One schedule each: a search would take minutes in a debug build.
    @Test("each deliberate mistake is found, and its schedule passes without it", arguments: Mutant.allCases)
    func mistakes(mutant: Mutant) {
        let schedule = SimulatedSchedule(seed: mutant.exampleSeed)
        let moved: Comment = "the example seed has moved: put the seed that `make simulate-mutants` prints in its place"
        #expect(schedule.play(mutant: mutant).violation != nil, moved)
        #expect(schedule.play().violation == nil)
    }
}
