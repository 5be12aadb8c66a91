import Testing

@testable import bench

struct ComparisonTests {
    @Test("the median of an even number of samples lies between the two in the middle")
    func median() throws {
        #expect(try #require(Samples([4, 1, 3, 2])).median == 2.5)
        #expect(try #require(Samples([9, 1, 5])).median == 5)
        #expect(Samples([]) == nil)
    }

    @Test("the ratio is formed within each round, so a slow round does not change it")
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

    @Test("upper and lower targets include their limits")
    func targets() {
        #expect(Target.atMost(1.1).isMet(by: 1.1))
        #expect(!Target.atMost(1.1).isMet(by: 1.1001))
        #expect(Target.atLeast(0.9).isMet(by: 0.9))
        #expect(!Target.atLeast(0.9).isMet(by: 0.8999))
    }

    @Test("the median ratio decides the verdict of a comparison")
    func verdict() throws {
        let comparison = try #require(Comparison(measured: figure([90, 105, 300]), baseline: figure([100, 100, 100])))
        #expect(row(.compared(comparison, .atMost(1.1))).verdict == .met)
        #expect(row(.compared(comparison, .atMost(1.0))).verdict == .missed)
        #expect(row(.compared(comparison, nil)).verdict == .informative)
        #expect(row(.measured(try figure([5]), .atMost(4))).verdict == .missed)
        // A target for the figure itself applies to the figure, and not to the ratio.
        #expect(row(.compared(comparison, .figureAtMost(105))).verdict == .met)
        #expect(row(.compared(comparison, .figureAtMost(104))).verdict == .missed)
    }

    private func figure(_ values: [Double]) throws -> Figure {
        Figure(contender: "one", unit: .nanoseconds, samples: try #require(Samples(values)))
    }

    private func row(_ outcome: Row.Outcome) -> Row {
        Row(benchmark: "any", title: "any", outcome: outcome)
    }
}

struct PresentationTests {
    @Test(
        "a figure has three digits and a fitting prefix",
        arguments: [
            (62_140.0, "62.1 µs"), (999.6, "1000 ns"), (1_000, "1.00 µs"), (1.5e9, "1.50 s"), (0, "0.00 ns"),
            (12_345_678_901, "12.3 s"),
        ]
    )
    func nanoseconds(value: Double, text: String) {
        #expect(Unit.nanoseconds.text(value) == text)
    }

    @Test("the extremes share the prefix of the median")
    func extremes() throws {
        let samples = try #require(Samples([900, 1_500, 12_000]))
        #expect(Unit.nanoseconds.text(samples) == "1.50 µs (0.90–12.0)")
        #expect(Unit.perSecond.text(85_000) == "85.0 k/s")
        #expect(Unit.bytes.text(8_730_000) == "8.73 MB")
        #expect(Unit.count.text(0) == "0")
    }

    @Test("columns are aligned, and a long reason does not widen any")
    func table() throws {
        let samples = try #require(Samples([100]))
        let figure = Figure(contender: "x", unit: .nanoseconds, samples: samples)
        let comparison = try #require(Comparison(measured: figure, baseline: figure))
        let reason = String(repeating: "long ", count: 40)
        let rows = [
            Row(benchmark: "a", title: "first", outcome: .compared(comparison, .atMost(1.1))),
            Row(benchmark: "b", title: "second one", outcome: .failed(reason)),
        ]
        let lines = Table(rows: rows, colour: false).text.split(separator: "\n")
        #expect(lines.count == 3)
        #expect(lines[0].contains("measured") && lines[0].count < 90)
        #expect(lines[1].hasPrefix("first       x 100 ns (100–100)  x 100 ns (100–100)  1.00 (1.00–1.00)  ≤ 1.10"))
        #expect(lines[1].hasSuffix("met"))
        #expect(lines[2].hasPrefix("second one  failed: long long"))
    }

    @Test("verdicts are coloured only if colours are on")
    func colours() throws {
        let figure = Figure(contender: "x", unit: .bytes, samples: try #require(Samples([10])))
        let rows = [Row(benchmark: "a", title: "first", outcome: .measured(figure, .atMost(1)))]
        #expect(Table(rows: rows, colour: true).text.contains("\u{1B}[31mmissed\u{1B}[0m"))
        #expect(!Table(rows: rows, colour: false).text.contains("\u{1B}"))
    }

    @Test("the JSON has every sample, the ratio, the target and the verdict")
    func json() throws {
        let measured = Figure(contender: "ours", unit: .nanoseconds, samples: try #require(Samples([3, 6])))
        let baseline = Figure(contender: "libdbus", unit: .nanoseconds, samples: try #require(Samples([2, 4])))
        let comparison = try #require(Comparison(measured: measured, baseline: baseline))
        let row = Row(benchmark: "a", title: "first", outcome: .compared(comparison, .atMost(1.1)))
        let machine = Machine(processors: 2, processor: "some", kernel: "6")
        let text = try JSONReport(rows: [row], machine: machine, seconds: 1).text()
        for part in ["\"missed\"", "\"at most\"", "\"ours\"", "\"libdbus\"", "1.5", "\"nanoseconds\""] {
            #expect(text.contains(part), "\(part)")
        }
    }
}
