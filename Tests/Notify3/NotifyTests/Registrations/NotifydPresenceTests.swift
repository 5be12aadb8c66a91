import Testing

@testable import notify

@Suite struct NotifydPresenceTests {
    @Test func aResponseCountsOnce() {
        var presence = NotifydPresence()
        let question = presence.question
        let isNews = presence.learn(.present(":1.7"), answering: question)
        #expect(isNews && presence.value == .present(":1.7"))
        let isNewsAgain = presence.learn(.absent, answering: question)
        #expect(!isNewsAgain && presence.value == .present(":1.7"))
    }

    /// On another bus, the same names belong to other processes.
    @Test func aResponseFromBeforeAnOutageDoesNotCountAfterIt() {
        var presence = NotifydPresence()
        let question = presence.question
        presence.learn(.unknown)
        let isNews = presence.learn(.present(":1.7"), answering: question)
        #expect(!isNews && presence.value == .unknown)
        let isNewsOfTheNextBus = presence.learn(.present(":1.2"), answering: presence.question)
        #expect(isNewsOfTheNextBus && presence.value == .present(":1.2"))
    }

    @Test func aChangeThatTheBusReportsIsNewerThanAResponse() {
        var presence = NotifydPresence()
        let question = presence.question
        presence.learn(.absent)
        presence.learn(.unknown)
        let isNews = presence.learn(.present(":1.7"), answering: question)
        #expect(!isNews && presence.value == .unknown)
    }
}
