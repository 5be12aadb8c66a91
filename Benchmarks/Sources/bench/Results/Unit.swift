/// What a figure counts, and how a person reads it.
enum Unit: String, Codable {
    case nanoseconds
    case perSecond
    case bytes
    case count

    /// Three significant digits with the prefix that fits the value, such as `62.1 µs`.
    func text(_ value: Double) -> String {
        let step = scale(of: value)
        return digits(value / step.size) + (step.symbol.isEmpty ? "" : " \(step.symbol)")
    }

    /// The median with its extremes, all in the prefix that fits the median: `62.1 µs (60.2–70.4)`.
    func text(_ samples: Samples) -> String {
        let step = scale(of: samples.median)
        let minimum = digits(samples.minimum / step.size)
        let maximum = digits(samples.maximum / step.size)
        return "\(text(samples.median)) (\(minimum)–\(maximum))"
    }

    private func digits(_ value: Double) -> String {
        self == .count ? fixed(value, digits: 0) : threeDigits(value)
    }

    private func scale(of value: Double) -> (size: Double, symbol: String) {
        var chosen = steps[0]
        for step in steps where value.magnitude >= step.size { chosen = step }
        return chosen
    }

    private var steps: [(size: Double, symbol: String)] {
        switch self {
        case .nanoseconds: [(1, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")]
        case .perSecond: [(1, "/s"), (1e3, "k/s"), (1e6, "M/s")]
        case .bytes: [(1, "B"), (1e3, "kB"), (1e6, "MB")]
        case .count: [(1, "")]
        }
    }
}
