/// One question that the table answers, in one row or a few.
protocol Benchmark: Sendable {
    /// The word that selects it on the command line.
    var name: String { get }
    /// What it measures, for `--list`.
    var summary: String { get }

    /// Measures. What goes wrong with one contender becomes a row that says so; thrown are `.interrupted` and what
    /// leaves nothing to report.
    func rows(in setting: Setting) throws(BenchmarkError) -> [Row]
}

/// All of them, in the order of the table.
let benchmarks: [any Benchmark] = [
    RoundTrip(), Throughput(), OtherNames(), Registration(), FanOut(), SameName(), WholeProcess(), Memory(),
    NotifyCheck(), NotifyPost(), NotifyRegistration(), NotifyState(),
    SignOut(), SharedDeviceCalls(), BrokerMemory(),
]
