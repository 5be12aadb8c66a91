/// Very many registrations of one name in one process: they share one rule at the bus.
struct SameName: Benchmark {
    let name = "same-name"
    let summary = "100 000 registrations of one name in one process: time, and memory of each"

    private static let registrations = 100_000

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        let title = "100 000 registrations of one name"
        let memoryTitle = "memory of each of them"
        guard setting.programs.swift != nil else {
            let outcome = Row.Outcome.unavailable("a role of our own peer only")
            return [title, memoryTitle].map { Row(benchmark: name, title: $0, outcome: outcome) }
        }
        var bytes: [Double] = []
        let results = try Alternation(rounds: setting.rounds(10), progress: setting.progress)
            .run(contenders: 1) { _ throws(BenchmarkError) in
                try setting.bus.settle()
                let one = try setting.start(setting.subject, "idle", "BenchSame")
                defer { one.stop() }
                let many = try setting.start(setting.subject, "same", "BenchSame", "\(Self.registrations)")
                defer { many.stop() }
                let elapsed = try many.result().integer("elapsed-ns")
                let base = try ResidentMemory.of(one.processIdentifier).own
                let all = try ResidentMemory.of(many.processIdentifier).own
                bytes.append(Double(all - base) / Double(Self.registrations - 1))
                return Double(elapsed)
            }
        let memory = results[0].flatMap { _ in
            Samples(bytes).map { .success($0) } ?? .failure(BenchmarkError(.wrongCount, "no memory was read"))
        }
        return [
            .measuring(
                title,
                of: self,
                unit: .nanoseconds,
                label: setting.subject.label,
                result: results[0],
                target: .atMost(1e9)
            ),
            .measuring(memoryTitle, of: self, unit: .bytes, label: setting.subject.label, result: memory),
        ]
    }
}
