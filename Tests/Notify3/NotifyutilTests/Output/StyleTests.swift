import NotifyCenter
import Testing

@testable import notifyutil

// Rules, b
@Suite("Lines")
struct StyleTests {
    private let time = Timestamp(milliseconds: 1_700_000_000_007)

    private func event(_ content: Event.Content) -> Event {
        Event(token: 3, time: time, name: "com.foo", content: content)
    }

    private func style(_ verbosity: Style.Verbosity, json: Bool = false) -> Style {
        Style(verbosity: verbosity, isJSON: json)
    }

    @Test("the line of an event is its name; with -v also token, time, state and kind; with -q there is none")
    func darwin() {
        let read = event(.darwin(.port, state: .value(7)))
        #expect(style(.normal).line(event(.darwin(.port, state: nil))) == "com.foo")
        #expect(style(.verbose).line(read) == "[3] 1700000000.007 com.foo 7 port")
        #expect(style(.quiet).line(read) == nil)
        #expect(style(.quiet, json: true).line(read) == nil)
        let unread = event(.darwin(.signal(4), state: .failed(9)))
        #expect(style(.verbose).line(unread) == "[3] 1700000000.007 com.foo : Failed with code 9")
    }

    @Test(
        "kinds have Darwin's words",
        arguments: zip(
            [Kind.port, .file, .dispatch, .signal(5), .check, .plain],
            ["port", "file", "dispatch", "signal", "check", "plain"]
        )
    )
    func kinds(kind: Kind, word: String) {
        #expect(style(.verbose).line(event(.darwin(kind, state: .value(0))))?.hasSuffix(" 0 \(word)") == true)
    }

    @Test("JSON of an event has the same, and the state with -v")
    func json() {
        let start = #"{"type":"event","name":"com.foo","token":3,"time":1700000000.007,"kind":"check""#
        #expect(style(.normal, json: true).line(event(.darwin(.check, state: nil))) == "\(start)}")
        #expect(
            style(.verbose, json: true).line(event(.darwin(.check, state: .value(.max))))
                == "\(start),\"state\":18446744073709551615}"
        )
        #expect(
            style(.verbose, json: true).line(event(.darwin(.check, state: .failed(9))))
                == "\(start),\"state\":null,\"code\":9}"
        )
    }

    @Test("a distributed event has object, userInfo and sender")
    func distributed() {
        let full = event(.distributed(object: "o \"x\"", userInfo: ["k": [1]], sender: ":1.5"))
        #expect(style(.normal).line(full) == "com.foo")
        #expect(style(.verbose).line(full) == #"[3] 1700000000.007 com.foo "o \"x\"" {"k":[1]} distributed"#)
        let bare = event(.distributed(object: nil, userInfo: nil, sender: nil))
        #expect(style(.verbose).line(bare) == "[3] 1700000000.007 com.foo - - distributed")
        let start = #"{"type":"event","name":"com.foo","token":3,"time":1700000000.007,"kind":"distributed""#
        #expect(
            style(.normal, json: true).line(full)
                == start + #","object":"o \"x\"","userinfo":{"k":[1]},"sender":":1.5"}"#
        )
        #expect(style(.normal, json: true).line(bare) == start + #","object":null,"userinfo":null,"sender":null}"#)
    }

    @Test("signals, states and failures")
    func others() {
        #expect(style(.normal).line(signal: 10, time: time) == "SIGNAL 10")
        #expect(style(.verbose).line(signal: 10, time: time) == "SIGNAL 10")
        #expect(style(.quiet).line(signal: 10, time: time) == nil)
        #expect(
            style(.normal, json: true).line(signal: 10, time: time)
                == #"{"type":"signal","signal":10,"time":1700000000.007}"#
        )
        #expect(style(.quiet).line(state: .max, of: "n") == "n 18446744073709551615")
        #expect(style(.quiet, json: true).line(state: 1, of: "n") == #"{"type":"state","name":"n","state":1}"#)
        let failure = Failure("post", "n", status: 7)
        #expect(style(.quiet).line(failure) == "n: Failed with code 7")
        #expect(style(.normal, json: true).line(failure) == #"{"type":"error","name":"n","code":7}"#)
        #expect(style(.normal).line(Failure("list", status: 9)) == nil)
    }

    @Test(
        "failures end the program by their reason",
        arguments: zip(
            [0, 7, 9, 1, 5, 1_000_000],
            [notifyutil.ExitStatus.done, .notAuthorized, .unavailable, .failed, .failed, .failed]
        )
    )
    func exitStatuses(status: Int, exit: notifyutil.ExitStatus) {
        #expect(notifyutil.ExitStatus(status: UInt32(status)) == exit)
    }

    @Test("a time is written with three digits of milliseconds")
    func times() {
        #expect(Timestamp(milliseconds: 1_000).text == "1.000")
        #expect(Timestamp(milliseconds: 1_999).text == "1.999")
        #expect(Timestamp(milliseconds: 12_045).text == "12.045")
    }
}
