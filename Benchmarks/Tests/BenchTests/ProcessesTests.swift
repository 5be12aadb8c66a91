import Glibc
import Testing

@testable import bench

/// With the real daemon and real processes.
struct PrivateBusTests {
    @Test("the bus responds, and leaves nothing behind when it ends")
    func lifetime() throws {
        var bus: PrivateBus? = try PrivateBus()
        let address = try #require(bus?.address)
        try bus?.settle()
        let path = try #require(address.split(separator: ",").first?.split(separator: "=").last.map(String.init))
        #expect(access(path, F_OK) == 0)
        bus = nil
        let folder = path.split(separator: "/").dropLast().map { "/" + $0 }.joined()
        #expect(access(folder, F_OK) != 0)
    }

    @Test("reading from a silent program fails at the deadline")
    func silence() throws {
        let sleeper = try ChildProcess(Command(program: try #require(program("sleep")), arguments: ["60"]))
        #expect { try sleeper.line(before: monotonicNanoseconds() + 1_000_000) } throws: {
            ($0 as? BenchmarkError)?.code == .peer
        }
        sleeper.stop()
        #expect(kill(sleeper.identifier, 0) == -1)
    }

    @Test("a launcher runs the program with its arguments")
    func launcher() {
        let command = Command(program: "/bin/peer", arguments: ["echo"]).launched(by: ["/bin/counter", "--log"])
        #expect(command.program == "/bin/counter")
        #expect(command.arguments == ["--log", "/bin/peer", "echo"])
        #expect(Command(program: "/bin/peer").launched(by: []).program == "/bin/peer")
    }

    @Test("output is split into lines, and its end is detected")
    func lines() throws {
        let printf = try #require(program("printf"))
        let child = try ChildProcess(Command(program: printf, arguments: ["ready\nresult a=1\n"]))
        let deadline = monotonicNanoseconds() + patience
        #expect(try child.line(before: deadline) == "ready")
        #expect(try child.line(before: deadline) == "result a=1")
        #expect { try child.line(before: deadline) } throws: { ($0 as? BenchmarkError)?.code == .peer }
    }
}

struct ResultLineTests {
    @Test("numbers and lists are read by their keys")
    func values() throws {
        let line = try ResultLine("result received=42 stamps=1,2,30")
        #expect(try line.integer("received") == 42)
        #expect(try line.integers("stamps") == [1, 2, 30])
    }

    @Test("a line that is not a result is rejected", arguments: ["ready", "", "result received", "results received=1"])
    func otherLines(text: String) {
        #expect { try ResultLine(text) } throws: { ($0 as? BenchmarkError)?.code == .malformedResult }
    }

    @Test("a missing key and a value that is not a number are rejected", arguments: ["received", "lost", "stamps"])
    func badValues(key: String) throws {
        let line = try ResultLine("result received=many stamps=1,,x")
        #expect { try line.integer(key) } throws: { ($0 as? BenchmarkError)?.code == .malformedResult }
        #expect { try line.integers(key) } throws: { ($0 as? BenchmarkError)?.code == .malformedResult }
    }
}

struct ResidentMemoryTests {
    @Test("own memory is the sum of the private clean and private dirty pages")
    func rollup() throws {
        let text = """
            55d0c0000000-7ffd00000000 ---p 00000000 00:00 0    [rollup]
            Rss:                2900 kB
            Pss:                 700 kB
            Shared_Clean:       2400 kB
            Private_Clean:       100 kB
            Private_Dirty:       300 kB

            """
        let memory = try #require(ResidentMemory(smapsRollup: text))
        #expect(memory.resident == 2900 * 1024)
        #expect(memory.own == 400 * 1024)
    }

    @Test("a text without the required lines yields no memory")
    func missing() {
        #expect(ResidentMemory(smapsRollup: "Rss: 2900 kB\n") == nil)
    }
}

struct AlternationTests {
    @Test("every second round runs backwards, and the first round is not counted")
    func order() throws {
        var calls: [Int] = []
        let results = try Alternation(rounds: 2, progress: Progress()).run(contenders: 2) { index in
            calls.append(index)
            return Double(calls.count)
        }
        #expect(calls == [0, 1, 1, 0, 0, 1])
        #expect(try results.map { try $0.get().values } == [[4, 5], [3, 6]])
    }

    @Test("a failed contender is left out, and the others continue")
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
