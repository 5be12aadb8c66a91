/// What the project promises of a figure or of a ratio.
enum Target: Equatable {
    case atMost(Double)
    case atLeast(Double)

    func isMet(by value: Double) -> Bool {
        switch self {
        case .atMost(let limit): value <= limit
        case .atLeast(let limit): value >= limit
        }
    }

    /// The target with its sign, the limit written by `describe`.
    func text(_ describe: (Double) -> String) -> String {
        switch self {
        case .atMost(let limit): "≤ " + describe(limit)
        case .atLeast(let limit): "≥ " + describe(limit)
        }
    }
}
