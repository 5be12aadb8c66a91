extension Row {
    /// The row for a contender and its baseline as they came out of an `Alternation`.
    static func comparing(
        _ title: String,
        of benchmark: any Benchmark,
        unit: Unit,
        measured: (label: String, result: Result<Samples, BenchmarkError>),
        baseline: (label: String, result: Result<Samples, BenchmarkError>),
        target: Target? = nil
    ) -> Row {
        let outcome: Outcome
        do throws(BenchmarkError) {
            let figure = Figure(contender: measured.label, unit: unit, samples: try measured.result.get())
            let other = Figure(contender: baseline.label, unit: unit, samples: try baseline.result.get())
            if let comparison = Comparison(measured: figure, baseline: other) {
                outcome = .compared(comparison, target)
            } else {
                outcome = .failed("the two cannot be compared: unequal rounds, or a baseline of zero")
            }
        } catch {
            outcome = .failed(error.description)
        }
        return Row(benchmark: benchmark.name, title: title, outcome: outcome)
    }

    /// The row for a figure that has nothing to compare with.
    static func measuring(
        _ title: String,
        of benchmark: any Benchmark,
        unit: Unit,
        label: String,
        result: Result<Samples, BenchmarkError>,
        target: Target? = nil
    ) -> Row {
        switch result {
        case .success(let samples):
            let figure = Figure(contender: label, unit: unit, samples: samples)
            return Row(benchmark: benchmark.name, title: title, outcome: .measured(figure, target))
        case .failure(let error):
            return Row(benchmark: benchmark.name, title: title, outcome: .failed(error.description))
        }
    }
}
