import Testing

@testable import bench

struct AlternationTests {
    @Test("every second round runs backwards, and the first is not counted")
    func order() throws {
        var calls: [Int] = []
        let results = try Alternation(rounds: 2, progress: Progress()).run(contenders: 2) { index in
            calls.append(index)
            return Double(calls.count)
        }
        #expect(calls == [0, 1, 1, 0, 0, 1])
        #expect(try results.map { try $0.get().values } == [[4, 5], [3, 6]])
    }

    @Test("a contender that fails is left out, and the others go on")
    func failure() throws {
        var calls = [0, 0]
        let results = try Alternation(rounds: 3, progress: Progress())
            .run(contenders: 2) { index throws(BenchmarkError) in
                calls[index] += 1
                if index == 0 { throw BenchmarkError(.peer, "gone") }
                return 1
            }
        #expect(calls == [1, 4])
        #expect(results[0] == .failure(BenchmarkError(.peer, "gone")))
        #expect(try results[1].get().values == [1, 1, 1])
    }
}
