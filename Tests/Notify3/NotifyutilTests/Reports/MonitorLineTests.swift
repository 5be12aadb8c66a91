import NotifyCenter
import Testing

@testable import notifyutil

@Suite("Lines of the monitor")
struct MonitorLineTests {
    private let darwin = MonitoredPost(
        time: Timestamp(milliseconds: 5_001),
        name: "a\n",
        sender: ":1.2",
        content: .darwin
    )
    private let distributed = MonitoredPost(
        time: Timestamp(milliseconds: 5_001),
        name: "b",
        sender: ":1.2",
        content: .distributed(object: "o", userInfo: ["k": 1])
    )
    private let sender = Sender(process: 7, user: 0, program: "/bin/x y")

    @Test("time, name, center, process and program; then object and userInfo")
    func text() {
        #expect(Style().line(darwin, sender) == #"5.001 a\u000a darwin 7 /bin/x y"#)
        #expect(Style().line(distributed, sender) == #"5.001 b distributed 7 /bin/x y "o" {"k":1}"#)
        #expect(Style().line(distributed, Sender()) == #"5.001 b distributed - - "o" {"k":1}"#)
    }

    @Test("JSON has the same, and the sender's bus name and user")
    func json() {
        let style = Style(isJSON: true)
        #expect(
            style.line(darwin, sender)
                == #"{"type":"post","name":"a\n","time":5.001,"center":"darwin","sender":":1.2","pid":7,"uid":0,"program":"/bin/x y"}"#
        )
        #expect(
            style.line(distributed, Sender())
                == #"{"type":"post","name":"b","time":5.001,"center":"distributed","sender":":1.2","pid":null,"uid":null,"#
                + #""program":null,"object":"o","userinfo":{"k":1}}"#
        )
    }
}
