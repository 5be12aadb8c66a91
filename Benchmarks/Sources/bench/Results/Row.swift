/// One line of the table.
struct Row: Equatable {
    enum Outcome: Equatable {
        /// The target, where there is one, is for the median of the ratios.
        case compared(Comparison, Target?)
        /// Nothing to compare with. The target, where there is one, is for the median, in the figure's unit.
        case measured(Figure, Target?)
        /// Not measured for a reason outside the project, such as a library that is not installed.
        case unavailable(String)
        /// A measurement that broke off, with the reason.
        case failed(String)
    }

    /// The name by which the command line selects the row's benchmark.
    let benchmark: String
    let title: String
    let outcome: Outcome

    var verdict: Verdict {
        switch outcome {
        case .compared(_, nil), .measured(_, nil): .informative
        case .compared(let comparison, .some(let target)): .of(target, comparison.ratios.median)
        case .measured(let figure, .some(let target)): .of(target, figure.samples.median)
        case .unavailable: .unavailable
        case .failed: .failed
        }
    }
}

/// What a row says about the project's promise.
enum Verdict: String, Codable {
    case met
    case missed
    /// No promise was made.
    case informative
    case unavailable
    case failed

    static func of(_ target: Target, _ value: Double) -> Verdict {
        target.isMet(by: value) ? .met : .missed
    }
}
