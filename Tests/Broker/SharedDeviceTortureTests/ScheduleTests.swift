import Testing
import simulate

@Suite("A schedule is derived from its seed alone")
struct ScheduleTests {
    @Test("the same seed gives the same schedule on each machine")
    func reproducible() {
        #expect(Schedule(seed: 123) == Schedule(seed: 123))
        // Recorded once. Another machine or another version of Swift must give the same steps.
        #expect(Schedule(seed: 123).steps.prefix(6).map(\.description) == Self.firstSteps)
        var random = SplitMix64(seed: 1_234_567)
        #expect([random.next(), random.next()] == [6_457_827_717_110_365_317, 3_203_168_211_198_807_973])
    }

    private static let firstSteps = [
        "kill the adapter", "app 1: sign ada in, with 3000 ms of patience", "until all is answered",
        "start the adapter", "until all is cleaned", "kill the adapter",
    ]

    @Test("different seeds give different schedules, with both policies and all steps")
    func variety() {
        let schedules = (1...200).map { Schedule(seed: UInt64($0)) }
        #expect(Set(schedules.map(\.steps)).count == 200)
        #expect(Set(schedules.map(\.isStrict)) == [true, false])
        let kinds = Set(schedules.flatMap(\.steps).map { "\($0)".filter { !$0.isNumber } })
        for kind in [
            "sign ada in", "sign grace out", "administrator: sign out", "token of ada", ": ask", ": work", "kill app",
            "start app",
            "stop app", "resume app", "kill the broker", "start the broker", "stop the broker", "resume the broker",
            "restart the bus", "a hostile client: squats", "the hostile client ends", "the disk is full",
            "the disk has room", "amid its cleanup", "becomes strict", "pause", "until all is answered",
            "until all is cleaned", "until all show the user", "kill the adapter", "start the adapter",
            "kill the adapter's program",
        ] {
            #expect(kinds.contains { $0.contains(kind) }, "\(kind)")
        }
    }

    @Test("no step waits for an event that cannot happen")
    func sense() {
        for seed in 1...2000 { #expect(Schedule(seed: UInt64(seed)).isSensible, "\(Schedule(seed: UInt64(seed)))") }
        let steps: [Step] = [.stop(app: 0), .resume(app: 0), .untilCleaned]
        let schedule = Schedule(seed: 0, isStrict: true, steps: steps)
        #expect(schedule.isSensible)
        #expect(!schedule.without(1).isSensible)
        #expect(schedule.without(0).isSensible)
        let disk = Schedule(seed: 0, isStrict: true, steps: [.fillDisk, .freeDisk, .untilShown])
        #expect(disk.isSensible)
        #expect(!disk.without(1).isSensible)
    }
}
