import FoundationEssentials

/// The rows for other programs: every sample, in nanoseconds, per second, bytes, or as a number.
struct JSONReport: Encodable {
    let machine: Machine
    let seconds: Double
    let rows: [Entry]

    struct Entry: Encodable {
        let benchmark: String
        let title: String
        let verdict: Verdict
        let measured: Quantity?
        let baseline: Quantity?
        let ratio: Summary?
        let target: Limit?
        let reason: String?
    }

    struct Quantity: Encodable {
        let contender: String
        let unit: Unit
        let summary: Summary
    }

    struct Summary: Encodable {
        let median: Double
        let minimum: Double
        let maximum: Double
        let samples: [Double]
    }

    struct Limit: Encodable {
        let kind: String
        let value: Double
    }

    init(rows: [Row], machine: Machine, seconds: Double) {
        self.machine = machine
        self.seconds = seconds
        self.rows = rows.map(Entry.init)
    }

    /// Throws `JSONEncoder`'s error for a ratio that is not finite.
    func text() throws -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys]
        return String(decoding: try encoder.encode(self), as: UTF8.self) + "\n"
    }
}

extension JSONReport.Entry {
    init(_ row: Row) {
        let comparison: Comparison? = if case .compared(let comparison, _) = row.outcome { comparison } else { nil }
        let figure: Figure? = if case .measured(let figure, _) = row.outcome { figure } else { comparison?.measured }
        let target: Target? =
            switch row.outcome {
            case .compared(_, let target), .measured(_, let target): target
            case .unavailable, .failed: nil
            }
        let reason: String? =
            switch row.outcome {
            case .unavailable(let reason), .failed(let reason): reason
            case .compared, .measured: nil
            }
        self.init(
            benchmark: row.benchmark,
            title: row.title,
            verdict: row.verdict,
            measured: figure.map(JSONReport.Quantity.init),
            baseline: comparison.map { JSONReport.Quantity($0.baseline) },
            ratio: comparison.map { JSONReport.Summary($0.ratios) },
            target: target.map(JSONReport.Limit.init),
            reason: reason
        )
    }
}

extension JSONReport.Quantity {
    init(_ figure: Figure) {
        self.init(contender: figure.contender, unit: figure.unit, summary: JSONReport.Summary(figure.samples))
    }
}

extension JSONReport.Summary {
    init(_ samples: Samples) {
        self.init(
            median: samples.median,
            minimum: samples.minimum,
            maximum: samples.maximum,
            samples: samples.values
        )
    }
}

extension JSONReport.Limit {
    init(_ target: Target) {
        switch target {
        case .atMost(let value): self.init(kind: "at most", value: value)
        case .atLeast(let value): self.init(kind: "at least", value: value)
        case .figureAtMost(let value): self.init(kind: "measured at most", value: value)
        }
    }
}
