/// How long one process takes to observe many names, all requests under way at once, until the bus has answered each.
struct Registration: Benchmark {
    let name = "registration"
    let summary = "time to register 10 000 names in one process"

    private static let names = 10_000

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        let contenders = [setting.baseline, setting.subject]
        let results = try Alternation(rounds: setting.rounds(12), progress: setting.progress)
            .run(contenders: contenders.count) { index throws(BenchmarkError) in
                try setting.bus.settle()
                let peer = try setting.start(contenders[index], "register", "\(Self.names)", "BenchName")
                defer { peer.stop() }
                return Double(try peer.result().integer("elapsed-ns"))
            }
        return [
            .comparing(
                "registration of 10 000 names",
                of: self,
                unit: .nanoseconds,
                measured: (contenders[1].label, results[1]),
                baseline: (contenders[0].label, results[0])
            )
        ]
    }
}
