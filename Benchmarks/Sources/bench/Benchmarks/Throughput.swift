/// How many notifications a second reach one observer, all of them counted.
struct Throughput: Benchmark {
    let name = "throughput"
    let summary = "posts a second from one process to one observer, each one received"

    private static let posts = 100_000

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        let contenders = [setting.baseline, setting.subject]
        let stream = Stream(notification: "BenchStream", posts: setting.isQuick ? Self.posts / 2 : Self.posts)
        let results = try Alternation(rounds: setting.rounds(15), progress: setting.progress)
            .run(contenders: contenders.count) { index throws(BenchmarkError) in
                try setting.bus.settle()
                return try Double(stream.posts) * 1e9 / stream.nanoseconds(of: contenders[index], in: setting)
            }
        return [
            .comparing(
                "throughput to one observer",
                of: self,
                unit: .perSecond,
                measured: (contenders[1].label, results[1]),
                baseline: (contenders[0].label, results[0]),
                target: .atLeast(0.9)
            )
        ]
    }
}
