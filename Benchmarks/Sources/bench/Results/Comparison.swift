/// Two contenders measured in turn. The ratio is formed within each round and only then summarised: what slows the
/// machine for a while slows both sides of a round, and cancels out.
struct Comparison: Equatable {
    let measured: Figure
    let baseline: Figure
    let ratios: Samples

    /// `nil` unless both were measured in the same number of rounds and no baseline is zero.
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
