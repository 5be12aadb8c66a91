/// Two processes and one notification on its way at a time: one posts, the other observes it and posts back.
struct RoundTrip: Benchmark {
    let name = "round-trip"
    let summary = "post, observe, post back between two processes, one at a time"

    private static let roundTrips = 2000

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        var entrants: [(title: String, contender: Contender, target: Target?)] = [
            ("round trip", setting.subject, .atMost(1.10))
        ]
        if let swift = setting.programs.swift {
            entrants[0].title = "round trip, .immediate"
            entrants.append(("round trip, default delivery", swift.defaultDelivery, nil))
        }
        for case (let label, .some(let contender)) in setting.programs.otherLibraries {
            entrants.append(("round trip, \(label)", contender, nil))
        }

        let contenders = [setting.baseline] + entrants.map(\.contender)
        let results = try Alternation(rounds: setting.rounds(20), progress: setting.progress)
            .run(contenders: contenders.count) { index throws(BenchmarkError) in
                try nanosecondsPerRoundTrip(of: contenders[index], in: setting)
            }
        var rows = zip(entrants, results.dropFirst()).map { entrant, result in
            Row.comparing(
                entrant.title,
                of: self,
                unit: .nanoseconds,
                measured: (entrant.contender.label, result),
                baseline: (setting.baseline.label, results[0]),
                target: entrant.target
            )
        }
        for case (let label, nil) in setting.programs.otherLibraries {
            rows.append(Row(benchmark: name, title: "round trip, \(label)", outcome: .unavailable("not installed")))
        }
        return rows
    }

    private func nanosecondsPerRoundTrip(
        of contender: Contender,
        in setting: Setting
    ) throws(BenchmarkError) -> Double {
        try setting.bus.settle()
        let echo = try setting.start(contender, "echo", "BenchPing", "BenchPong")
        defer { echo.stop() }
        let ping = try setting.start(contender, "ping", "BenchPing", "BenchPong", "\(Self.roundTrips)")
        return Double(try ping.result().integer("median-ns"))
    }
}
