import Testing
import simulate

@Suite("A schedule is derived from its seed alone")
struct ScheduleTests {
    @Test("the same seed gives the same schedule on each machine")
    func reproducible() {
        #expect(Schedule(seed: 123) == Schedule(seed: 123))
        // Recorded once. Another machine or another version of Swift must give the same steps.
        let firstSteps: [Step] = [
            .killAdapter, .signIn(app: 1, user: "ada", patience: 3000), .untilAnswered, .startAdapter, .untilCleaned,
            .killAdapter,
        ]
        #expect(Array(Schedule(seed: 123).steps.prefix(6)) == firstSteps)
        var random = SplitMix64(seed: 1_234_567)
        #expect([random.next(), random.next()] == [6_457_827_717_110_365_317, 3_203_168_211_198_807_973])
    }

    @Test("different seeds give different schedules, with both policies and all steps")
    func variety() {
        let schedules = (UInt64(1)...200).map { Schedule(seed: $0) }
        #expect(Set(schedules.map(\.steps)).count == 200)
        #expect(Set(schedules.map(\.isStrict)) == [true, false])
        let kinds: Set<String> = [
            "signIn", "signOut", "signOutAnyone", "token", "ask", "work", "kill", "killCleaning", "start", "stop",
            "resume", "killAdapter", "startAdapter", "killProgram", "killBroker", "startBroker", "stopBroker",
            "resumeBroker", "restartBus", "becomeStrict", "attack", "endAttack", "fillDisk", "freeDisk", "pause",
            "untilAnswered", "untilCleaned", "untilShown",
        ]
        let steps = Set(schedules.flatMap(\.steps).map { "\($0)" })
        #expect(Set(steps.map { step in String(step.prefix { $0 != "(" }) }) == kinds)
        for detail in ["ada", "grace", "squats"] { #expect(steps.contains { $0.contains(detail) }, "\(detail)") }
    }

    @Test("no step waits for an event that cannot happen")
    func sense() {
        let senseless = (UInt64(1)...2000).map { Schedule(seed: $0) }.filter { !$0.isSensible }
        #expect(senseless.map(\.description) == [])
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
