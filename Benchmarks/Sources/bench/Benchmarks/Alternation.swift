/// Contenders measured in turn, round after round.
struct Alternation {
    let rounds: Int
    let progress: Progress

    /// Calls `measure` with the index of a contender, for each contender once a round, every second round in reverse
    /// order, after one round that is not counted. A contender that fails is left out from then on and gets its error
    /// as the result. Throws only `.interrupted`.
    func run(
        contenders: Int,
        measure: (Int) throws(BenchmarkError) -> Double
    ) throws(BenchmarkError) -> [Result<Samples, BenchmarkError>] {
        var values = [[Double]](repeating: [], count: contenders)
        var failures = [BenchmarkError?](repeating: nil, count: contenders)
        for round in 0...rounds {
            progress.round(round, of: rounds)
            let order = Array(0..<contenders)
            for contender in round.isMultiple(of: 2) ? order : order.reversed() where failures[contender] == nil {
                do throws(BenchmarkError) {
                    try Interruption.check()
                    let value = try measure(contender)
                    if round > 0 { values[contender].append(value) }
                } catch  where error.code == .interrupted {
                    throw error
                } catch {
                    failures[contender] = error
                }
            }
        }
        return zip(values, failures).map { values, failure in
            if let failure { return .failure(failure) }
            guard let samples = Samples(values) else {
                return .failure(BenchmarkError(.wrongCount, "there was no round to measure in"))
            }
            return .success(samples)
        }
    }
}
