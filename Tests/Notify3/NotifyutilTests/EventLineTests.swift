import CommandSupport
import Testing

@testable import notifyutil

// Rules, b
@Suite("Lines")
struct StyleTests {
    private let time = Timestamp(milliseconds: 1_700_000_000_007)

    private func event(_ kind: Kind, _ state: StateReading? = nil) -> Event {
        Event(token: 3, time: time, name: "com.foo", kind: kind, state: state)
    }

    @Test("an event prints its name, with -v also token, time, state and kind")
    func events() {
        #expect([1_000, 1_999, 12_045].map { Timestamp(milliseconds: $0).text } == ["1.000", "1.999", "12.045"])
        #expect(Verbosity.normal.line(event(.port)) == "com.foo")
        #expect(Verbosity.quiet.line(event(.port, .value(7))) == nil)
        let kinds: [(Kind, String)] = [
            (.port, "port"), (.file, "file"), (.dispatch, "dispatch"), (.signal(5), "signal"), (.check, "check"),
            (.plain, "plain"),
        ]
        for (kind, word) in kinds {
            #expect(Verbosity.verbose.line(event(kind, .value(7))) == "[3] 1700000000.007 com.foo 7 \(word)")
        }
        let unread = event(.signal(4), .failed(9))
        #expect(Verbosity.verbose.line(unread) == "[3] 1700000000.007 com.foo : Failed with code 9")
    }

    @Test("a signal and a failure print Darwin's lines")
    func others() {
        let lines = [Verbosity.normal, .verbose, .quiet].map { $0.line(signal: 10) }
        #expect(lines == ["SIGNAL 10", "SIGNAL 10", nil])
        #expect(Failure("post", "n", status: 7).line == "n: Failed with code 7")
        #expect(Failure("list", status: 9).line == nil)
    }

    @Test("each status has its exit status; a limit explains only a general failure")
    func statuses() {
        let exits = [0, 7, 9, 1, 5, 1_000_000].map { CommandSupport.ExitStatus(status: $0) }
        #expect(exits == [.done, .notAuthorized, .unavailable, .failed, .failed, .failed])
        let statuses: [UInt32] = [1_000_000, 1, 2, 4, 5, 7, 9]
        let limits = statuses.filter { Failure("watch", "n", status: $0).explanation.contains("ulimit") }
        #expect(limits == [1_000_000])
        let explanation = Failure("watch", "n", status: 4).explanation
        #expect(explanation.hasPrefix("could not watch n: notify(3) returned status 4"))
    }
}
