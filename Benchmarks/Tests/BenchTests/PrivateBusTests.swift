import Glibc
import Testing

@testable import bench

/// With the real daemon and real processes.
struct PrivateBusTests {
    @Test("the bus answers, and nothing of it is left when it goes")
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

    @Test("a program that is silent is given up at the deadline")
    func silence() throws {
        let sleeper = try ChildProcess(Command(program: try #require(program("sleep")), arguments: ["60"]))
        #expect { try sleeper.line(before: monotonicNanoseconds() + 1_000_000) } throws: {
            ($0 as? BenchmarkError)?.code == .peer
        }
        sleeper.stop()
        #expect(kill(sleeper.identifier, 0) == -1)
    }

    @Test("lines are told apart, and the end of the output is noticed")
    func lines() throws {
        let printf = try #require(program("printf"))
        let child = try ChildProcess(Command(program: printf, arguments: ["ready\nresult a=1\n"]))
        let deadline = monotonicNanoseconds() + patience
        #expect(try child.line(before: deadline) == "ready")
        #expect(try child.line(before: deadline) == "result a=1")
        #expect { try child.line(before: deadline) } throws: { ($0 as? BenchmarkError)?.code == .peer }
    }
}
