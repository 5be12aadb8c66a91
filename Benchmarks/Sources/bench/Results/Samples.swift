/// At least one measured value of one quantity.
struct Samples: Equatable {
    /// In the order of measurement.
    let values: [Double]

    /// `nil` for no values: a median of nothing must not reach a table.
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
