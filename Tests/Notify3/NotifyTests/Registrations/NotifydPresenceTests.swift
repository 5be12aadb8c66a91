import Testing

@testable import notify

@Suite struct NotifydPresenceTests {
    @Test func aResponseCountsOnceAndOnlyWithoutNewsSinceItsRequest() {
        var presence = NotifydPresence()
        func learns(_ value: NotifydPresence.Value, answering question: UInt64) -> Bool {
            presence.learn(value, answering: question)
        }
        let first = presence.question
        #expect(learns(.present(":1.7"), answering: first) && presence.value == .present(":1.7"))
        #expect(!learns(.absent, answering: first) && presence.value == .present(":1.7"))
        // A change that the bus reports is newer than a response. On another bus, the same names belong to other
        // processes.
        for changes: [NotifydPresence.Value] in [[.unknown], [.absent, .unknown]] {
            let question = presence.question
            for change in changes { presence.learn(change) }
            #expect(!learns(.present(":1.7"), answering: question) && presence.value == .unknown, "\(changes)")
        }
        #expect(learns(.present(":1.2"), answering: presence.question) && presence.value == .present(":1.2"))
    }
}
