/// What a process that observes one name costs while it waits.
struct Memory: Benchmark {
    let name = "memory"
    let summary = "memory of a process that observes one name"

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        let contenders = [setting.baseline, setting.subject]
        // What an Alternation returns is one number; the second is kept here, and cut to the same rounds.
        var resident: [[Double]] = [[], []]
        let rounds = setting.rounds(10)
        let own = try Alternation(rounds: rounds, progress: setting.progress)
            .run(contenders: contenders.count) { index throws(BenchmarkError) in
                try setting.bus.settle()
                let peer = try setting.start(contenders[index], "idle", "BenchIdle")
                defer { peer.stop() }
                let memory = try ResidentMemory.of(peer.processIdentifier)
                resident[index].append(Double(memory.resident))
                return Double(memory.own)
            }
        let all = zip(own, resident).map { own, values in
            own.flatMap { _ in
                Samples(values.suffix(rounds)).map { .success($0) }
                    ?? .failure(BenchmarkError(.wrongCount, "no memory was read"))
            }
        }
        let rows = [("memory of its own, one observer", own), ("resident memory, one observer", all)]
        return rows.map { title, results in
            .comparing(
                title,
                of: self,
                unit: .bytes,
                measured: (contenders[1].label, results[1]),
                baseline: (contenders[0].label, results[0])
            )
        }
    }
}
