// The results of one measurement: samples, the ratio to a baseline, the target, and their row in the table.

/// At least one measured value of one quantity.
struct Samples: Equatable {
    /// In the order of measurement.
    let values: [Double]

    /// `nil` for no values, which have no median.
    init?(_ values: [Double]) {
        guard !values.isEmpty else { return nil }
        self.values = values
    }

    /// The middle value, or the mean of the two in the middle.
    var median: Double {
        let sorted = values.sorted()
        let middle = sorted.count / 2
        return sorted.count.isMultiple(of: 2) ? (sorted[middle - 1] + sorted[middle]) / 2 : sorted[middle]
    }

    var minimum: Double { values.reduce(values[0], min) }

    var maximum: Double { values.reduce(values[0], max) }
}

/// One quantity of one contender, as measured over the rounds.
struct Figure: Equatable {
    let contender: String
    let unit: Unit
    let samples: Samples
}

/// Two contenders that were measured in turn. The ratio is formed within each round and summarised afterwards. So a
/// temporary slowdown of the machine, which affects both sides of a round, does not change it.
struct Comparison: Equatable {
    let measured: Figure
    let baseline: Figure
    let ratios: Samples

    /// `nil` if the numbers of rounds differ or a baseline is zero.
    init?(measured: Figure, baseline: Figure) {
        let pairs = zip(measured.samples.values, baseline.samples.values)
        guard measured.samples.values.count == baseline.samples.values.count,
            baseline.samples.values.allSatisfy({ $0 != 0 }),
            let ratios = Samples(pairs.map { $0 / $1 })
        else { return nil }
        self.measured = measured
        self.baseline = baseline
        self.ratios = ratios
    }
}

/// The project's promise for a figure or a ratio.
enum Target: Equatable {
    case atMost(Double)
    case atLeast(Double)
    /// In a comparison: the limit applies to the measured figure, and not to its ratio to the baseline.
    case figureAtMost(Double)

    func isMet(by value: Double) -> Bool {
        switch self {
        case .atMost(let limit), .figureAtMost(let limit): value <= limit
        case .atLeast(let limit): value >= limit
        }
    }

    /// The target with its sign. `ratio` formats a limit for a ratio, `figure` a limit for a figure.
    func text(ratio: (Double) -> String, figure: (Double) -> String) -> String {
        switch self {
        case .atMost(let limit): "≤ " + ratio(limit)
        case .atLeast(let limit): "≥ " + ratio(limit)
        case .figureAtMost(let limit): "≤ " + figure(limit)
        }
    }
}

struct Row: Equatable {
    enum Outcome: Equatable {
        /// The target, if any, applies to the median of the ratios; `figureAtMost` to the measured median.
        case compared(Comparison, Target?)
        /// A figure without a baseline. The target, if any, applies to the median, in the figure's unit.
        case measured(Figure, Target?)
        /// Not measured, for a reason outside the project, such as a library that is not installed.
        case unavailable(String)
        /// A measurement that failed, with the reason.
        case failed(String)
    }

    /// The name that selects the row's benchmark on the command line.
    let benchmark: String
    let title: String
    let outcome: Outcome

    var verdict: Verdict {
        switch outcome {
        case .compared(_, nil), .measured(_, nil): .informative
        case .compared(let comparison, .some(.figureAtMost(let limit))):
            .of(.figureAtMost(limit), comparison.measured.samples.median)
        case .compared(let comparison, .some(let target)): .of(target, comparison.ratios.median)
        case .measured(let figure, .some(let target)): .of(target, figure.samples.median)
        case .unavailable: .unavailable
        case .failed: .failed
        }
    }
}

/// Whether a row keeps the project's promise.
enum Verdict: String, Codable {
    case met
    case missed
    /// The row has no target.
    case informative
    case unavailable
    case failed

    static func of(_ target: Target, _ value: Double) -> Verdict {
        target.isMet(by: value) ? .met : .missed
    }
}

extension Row {
    /// The row of a contender and its baseline, as an `Alternation` measured them.
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
