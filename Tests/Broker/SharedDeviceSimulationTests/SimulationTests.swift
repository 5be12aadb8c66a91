import SharedDeviceSimulation
import Testing

@Suite("A simulated device: broker, apps, bus and disk on a clock that is a number")
struct SimulationTests {
    @Test("every promise holds in every schedule")
    func promises() {
        let result = Campaign(seed: 1, schedules: 200).run()
        #expect(result.played == 200)
        #expect(result.failures.map { "seed \($0.seed): \($0.violation ?? "")" } == [])
    }

    @Test("the same seed gives the same schedule, and the same schedule goes the same way")
    func reproducible() {
        func trace(_ seed: UInt64) -> [String] {
            var lines: [String] = []
            _ = SimulatedSchedule(seed: seed).play { lines.append($0) }
            return lines
        }
        for seed in UInt64(1)...20 { #expect(trace(seed) == trace(seed)) }
        #expect(Set((1...50).map { SimulatedSchedule(seed: UInt64($0)).text }).count == 50)
    }

    @Test("a broker that does not note a sign-out is found, and the schedule shrinks to the few steps that it takes")
    func shrinks() throws {
        let mutant = Mutant.noteIsNotWritten
        let campaign = Campaign(seed: mutant.exampleSeed, schedules: 2000, mutant: mutant)
        let failure = try #require(campaign.run().failures.first)
        let schedule = SimulatedSchedule(seed: failure.seed)
        let shrunk = schedule.shrunk(mutant: mutant)
        #expect(shrunk.stepCount < schedule.stepCount)
        #expect(shrunk.play(mutant: mutant).kind == failure.kind)
        #expect(shrunk.play().violation == nil, "without the mistake the same schedule goes well")
    }

    @Test("each planted mistake is found, and its schedule goes well without it", arguments: Mutant.allCases)
    func mistakes(mutant: Mutant) throws {
        let campaign = Campaign(seed: mutant.exampleSeed, schedules: 5000, mutant: mutant)
        let failure = try #require(campaign.run().failures.first)
        #expect(SimulatedSchedule(seed: failure.seed).play().violation == nil)
    }
}
