import Testing

@testable import bench

struct PresentationTests {
    @Test(
        "a figure has three digits and the prefix that fits",
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

    @Test("columns line up, and a long reason widens none")
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

    @Test("verdicts are coloured only where colours are wanted")
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
