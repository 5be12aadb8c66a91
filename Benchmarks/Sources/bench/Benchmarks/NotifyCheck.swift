/// What it costs to ask by notify(3) whether something was posted, for a C program on the shared library.
struct NotifyCheck: Benchmark {
    let name = "notify-check"
    let summary = "notify_check from C: nanoseconds, and system calls"

    private static let checks = 10_000_000

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        var systemCalls: [Double] = []
        let results = try Alternation(rounds: setting.rounds(20), progress: setting.progress)
            .run(contenders: 1) { _ throws(BenchmarkError) in
                try setting.bus.settle()
                let peer = try setting.start(setting.programs.notify, "check", "BenchCheck", "\(Self.checks)")
                defer { peer.stop() }
                let result = try peer.result()
                // Only the first answer is “posted”.
                guard try result.integer("answers") == 1 else {
                    throw BenchmarkError(.wrongCount, "notify_check did not answer as it should")
                }
                systemCalls.append(Double(try result.integer("system-calls")))
                return Double(try result.integer("elapsed-ns")) / Double(Self.checks)
            }
        let counted = results[0].flatMap { _ in
            Samples(systemCalls).map { .success($0) }
                ?? .failure(BenchmarkError(.wrongCount, "no system calls were counted"))
        }
        let label = setting.programs.notify.label
        return [
            .measuring(
                "notify_check",
                of: self,
                unit: .nanoseconds,
                label: label,
                result: results[0],
                target: .atMost(10)
            ),
            .measuring(
                "system calls in 10 000 000 of them",
                of: self,
                unit: .count,
                label: label,
                result: counted,
                target: .atMost(0)
            ),
        ]
    }
}
