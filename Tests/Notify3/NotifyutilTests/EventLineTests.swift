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
        #expect(Verbosity.normal.line(event(.port)) == "com.foo")
        #expect(Verbosity.verbose.line(event(.port, .value(7))) == "[3] 1700000000.007 com.foo 7 port")
        #expect(Verbosity.quiet.line(event(.port, .value(7))) == nil)
        let unread = event(.signal(4), .failed(9))
        #expect(Verbosity.verbose.line(unread) == "[3] 1700000000.007 com.foo : Failed with code 9")
    }

    @Test(
        "kinds are printed in Darwin's words",
        arguments: zip(
            [Kind.port, .file, .dispatch, .signal(5), .check, .plain],
            ["port", "file", "dispatch", "signal", "check", "plain"]
        )
    )
    func kinds(kind: Kind, word: String) {
        #expect(Verbosity.verbose.line(event(kind, .value(0)))?.hasSuffix(" 0 \(word)") == true)
    }

    @Test("a signal and a failure print Darwin's lines")
    func others() {
        #expect(Verbosity.normal.line(signal: 10) == "SIGNAL 10")
        #expect(Verbosity.verbose.line(signal: 10) == "SIGNAL 10")
        #expect(Verbosity.quiet.line(signal: 10) == nil)
        #expect(Failure("post", "n", status: 7).line == "n: Failed with code 7")
        #expect(Failure("list", status: 9).line == nil)
    }

    @Test(
        "each status of notify(3) has its exit status",
        arguments: zip(
            [0, 7, 9, 1, 5, 1_000_000],
            [CommandSupport.ExitStatus.done, .notAuthorized, .unavailable, .failed, .failed, .failed]
        )
    )
    func exitStatuses(status: Int, exit: CommandSupport.ExitStatus) {
        #expect(CommandSupport.ExitStatus(status: UInt32(status)) == exit)
    }

    @Test("a time is written with three digits of milliseconds")
    func times() {
        #expect(Timestamp(milliseconds: 1_000).text == "1.000")
        #expect(Timestamp(milliseconds: 1_999).text == "1.999")
        #expect(Timestamp(milliseconds: 12_045).text == "12.045")
    }
}
