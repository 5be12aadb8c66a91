import Testing

@testable import bench

struct ComparisonTests {
    @Test("the median of an even number of samples lies between the two in the middle")
    func median() throws {
        #expect(try #require(Samples([4, 1, 3, 2])).median == 2.5)
        #expect(try #require(Samples([9, 1, 5])).median == 5)
        #expect(Samples([]) == nil)
    }

    @Test("a ratio is formed within each round, so that a slow round for both does not show")
    func pairs() throws {
        let comparison = try #require(
            Comparison(measured: figure([110, 1_100, 220]), baseline: figure([100, 1_000, 200]))
        )
        #expect(comparison.ratios.median == 1.1)
        #expect(comparison.ratios.minimum == comparison.ratios.maximum)
    }

    @Test("unequal rounds and a baseline of zero are not compared")
    func incomparable() throws {
        #expect(Comparison(measured: try figure([1, 2]), baseline: try figure([1])) == nil)
        #expect(Comparison(measured: try figure([1, 2]), baseline: try figure([1, 0])) == nil)
    }

    @Test("a target of at most takes the limit itself and nothing above, at least nothing below")
    func targets() {
        #expect(Target.atMost(1.1).isMet(by: 1.1))
        #expect(!Target.atMost(1.1).isMet(by: 1.1001))
        #expect(Target.atLeast(0.9).isMet(by: 0.9))
        #expect(!Target.atLeast(0.9).isMet(by: 0.8999))
    }

    @Test("the verdict of a comparison is that of its median ratio")
    func verdict() throws {
        let comparison = try #require(Comparison(measured: figure([90, 105, 300]), baseline: figure([100, 100, 100])))
        #expect(row(.compared(comparison, .atMost(1.1))).verdict == .met)
        #expect(row(.compared(comparison, .atMost(1.0))).verdict == .missed)
        #expect(row(.compared(comparison, nil)).verdict == .informative)
        #expect(row(.measured(try figure([5]), .atMost(4))).verdict == .missed)
    }

    private func figure(_ values: [Double]) throws -> Figure {
        Figure(contender: "one", unit: .nanoseconds, samples: try #require(Samples(values)))
    }

    private func row(_ outcome: Row.Outcome) -> Row {
        Row(benchmark: "any", title: "any", outcome: outcome)
    }
}
