import Testing

@testable import bench

struct ResultLineTests {
    @Test("numbers and lists are read by their keys")
    func values() throws {
        let line = try ResultLine("result received=42 stamps=1,2,30")
        #expect(try line.integer("received") == 42)
        #expect(try line.integers("stamps") == [1, 2, 30])
    }

    @Test("a line of another kind is refused", arguments: ["ready", "", "result received", "results received=1"])
    func otherLines(text: String) {
        #expect { try ResultLine(text) } throws: { ($0 as? BenchmarkError)?.code == .malformedResult }
    }

    @Test("a missing key and a value that is no number are refused", arguments: ["received", "lost", "stamps"])
    func badValues(key: String) throws {
        let line = try ResultLine("result received=many stamps=1,,x")
        #expect { try line.integer(key) } throws: { ($0 as? BenchmarkError)?.code == .malformedResult }
        #expect { try line.integers(key) } throws: { ($0 as? BenchmarkError)?.code == .malformedResult }
    }
}
