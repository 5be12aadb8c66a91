import CommandSupport
import NotifyCenter
import Testing

@testable import notify_center

@Suite("Lines of watch and monitor")
struct PostLineTests {
    private let time = Timestamp(milliseconds: 5_001)
    private let sender = Sender(process: 7, user: 0, program: "/bin/x y")

    private var darwin: Post { Post(time: time, name: "a\n", sender: ":1.2", center: .darwin) }

    private func distributed(_ object: String?, _ userInfo: UserInfo?) -> Post {
        Post(time: time, name: "b", sender: ":1.2", center: .distributed(object: object, userInfo: userInfo))
    }

    @Test("a line has time, name, center, process, program, object and userInfo")
    func text() {
        #expect(darwin.line(isJSON: false, sender: nil) == #"5.001 a\u000a darwin"#)
        #expect(darwin.line(isJSON: false, sender: sender) == #"5.001 a\u000a darwin 7 /bin/x y"#)
        let full = distributed("o \"x\"", ["k": [1]])
        #expect(full.line(isJSON: false, sender: nil) == #"5.001 b distributed "o \"x\"" {"k":[1]}"#)
        #expect(full.line(isJSON: false, sender: sender) == #"5.001 b distributed 7 /bin/x y "o \"x\"" {"k":[1]}"#)
        #expect(distributed(nil, nil).line(isJSON: false, sender: Sender()) == "5.001 b distributed - - - -")
    }

    @Test("a JSON line also has the sender's bus name and user")
    func json() {
        let start = #"{"type":"post","name":"b","time":5.001,"center":"distributed","sender":":1.2""#
        #expect(
            darwin.line(isJSON: true, sender: sender)
                == #"{"type":"post","name":"a\n","time":5.001,"center":"darwin","sender":":1.2","pid":7,"uid":0,"program":"/bin/x y"}"#
        )
        #expect(
            distributed("o", ["k": 1]).line(isJSON: true, sender: Sender())
                == start + #","pid":null,"uid":null,"program":null,"object":"o","userinfo":{"k":1}}"#
        )
        #expect(distributed(nil, nil).line(isJSON: true, sender: nil) == start + #","object":null,"userinfo":null}"#)
    }

    @Test("the size of a post grows with its payload")
    func size() {
        let (small, large) = (
            distributed(nil, ["a": [.data([1])]]), distributed(nil, ["a": [.data(.init(repeating: 1, count: 1_000))]])
        )
        #expect(large.size == small.size + 999)
        #expect(distributed("object", [:]).size > distributed(nil, [:]).size)
        #expect(distributed(nil, ["k": ["1", "2"]]).size > distributed(nil, ["k": ["1"]]).size)
    }
}
