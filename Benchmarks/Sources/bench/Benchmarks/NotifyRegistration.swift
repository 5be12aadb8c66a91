/// Registrations by notify(3) from C: one that comes and goes, very many of one name, and from several threads at once.
struct NotifyRegistration: Benchmark {
    let name = "notify-registration"
    let summary = "notify_register_check and notify_cancel from C: one, 50 000 of a name, 100 000 from 4 threads"

    private static let turns = 2_000
    private static let duplicates = 50_000
    private static let parallel = 100_000

    func rows(in setting: Setting) throws(BenchmarkError) -> [Row] {
        try one(setting) + [
            many("50 000 duplicate registrations", "duplicates", Self.duplicates, rounds: 10, target: 1e9, setting),
            many(
                "100 000 register, post, cancel in 4 threads",
                "parallel",
                Self.parallel,
                rounds: 3,
                target: 10e9,
                setting
            ),
        ]
    }

    /// A round trip to the bus each: nobody else in the process has the name.
    private func one(_ setting: Setting) throws(BenchmarkError) -> [Row] {
        let contenders = [setting.programs.calls, setting.programs.notify]
        let results = try Alternation(rounds: setting.rounds(16), progress: setting.progress)
            .run(contenders: contenders.count) { index throws(BenchmarkError) in
                try setting.bus.settle()
                let peer = try setting.start(contenders[index], "churn", "BenchChurn", "\(Self.turns)")
                defer { peer.stop() }
                return Double(try peer.result().integer("median-ns"))
            }
        return [
            .comparing(
                "register and cancel a name",
                of: self,
                unit: .nanoseconds,
                measured: (contenders[1].label, results[1]),
                baseline: (contenders[0].label, results[0])
            )
        ]
    }

    private func many(
        _ title: String,
        _ role: String,
        _ count: Int,
        rounds: Int,
        target: Double,
        _ setting: Setting
    ) throws(BenchmarkError) -> Row {
        let results = try Alternation(rounds: setting.rounds(rounds), progress: setting.progress)
            .run(contenders: 1) { _ throws(BenchmarkError) in
                try setting.bus.settle()
                let peer = try setting.start(setting.programs.notify, role, "BenchMany", "\(count)")
                defer { peer.stop() }
                return Double(try peer.result().integer("elapsed-ns"))
            }
        return .measuring(
            title,
            of: self,
            unit: .nanoseconds,
            label: setting.programs.notify.label,
            result: results[0],
            target: .atMost(target)
        )
    }
}
