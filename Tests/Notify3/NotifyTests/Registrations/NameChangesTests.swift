import NotifyCenter
import Testing

@testable import notify

@Suite struct NameChangesTests {
    @Test(
        arguments: [
            ("", []), ("+", [.enter("n")]), ("-", [.leave("n")]), ("+-", []), ("-+", [.leave("n"), .enter("n")]),
            ("-+-", [.leave("n")]), ("-+-+", [.leave("n"), .enter("n")]), ("++", [.enter("n")]), ("+-+", [.enter("n")]),
        ] as [(String, [NameChanges.Telling])]
    )
    func comingsAndGoingsAreToldAsOne(_ history: String, _ expected: [NameChanges.Telling]) {
        var changes = NameChanges()
        for step in history {
            if step == "+" { changes.came("n") } else { changes.went("n") }
        }
        #expect(changes.isEmpty == expected.isEmpty)
        let told = changes.take()
        #expect(told == expected)
        #expect(changes.isEmpty)
    }
}
