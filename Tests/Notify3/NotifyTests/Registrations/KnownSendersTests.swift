import NotifyCenter
import NotifydProtocol
import Testing

@testable import notify

@Suite struct KnownSendersTests {
    private let root = Identity(user: 0)

    private func asked(_ step: KnownSenders<Int>.Step) throws -> UInt64 {
        guard case .ask(let generation) = step else { throw Unexpected(step: "\(step)") }
        return generation
    }

    private struct Unexpected: Error { let step: String }

    @Test func theBusIsAskedOnceForAllPostsOfASender() throws {
        var senders = KnownSenders<Int>()
        let generation = try asked(senders.posted("menu", by: ":1.5", 1))
        let (second, third) = (senders.posted("menu", by: ":1.5", 2), senders.posted("order", by: ":1.5", 3))
        guard case .wait = second, case .wait = third else { throw Unexpected(step: "\(second), \(third)") }
        let waiting = senders.answered(":1.5", .identity(root), in: generation)
        #expect(waiting.map(\.name) == ["menu", "order"])
        #expect(waiting.map(\.post) == [1, 3])
        guard case .decide(let known) = senders.posted("menu", by: ":1.5", 4) else {
            throw Unexpected(step: "no answer")
        }
        #expect(known == root)
    }

    @Test func postsThatWaitKeepTheirOrder() throws {
        var senders = KnownSenders<Int>()
        let names = (0..<100).map { NotificationName("n\($0)") }
        let generation = try asked(senders.posted(names[0], by: ":1.5", 0))
        for (number, name) in names.enumerated().dropFirst() { _ = senders.posted(name, by: ":1.5", number) }
        #expect(senders.answered(":1.5", .identity(root), in: generation).map(\.name) == names)
    }

    @Test func aSenderThatIsGoneStaysGone() throws {
        var senders = KnownSenders<Int>()
        let generation = try asked(senders.posted("menu", by: ":1.5", 1))
        _ = senders.answered(":1.5", .gone, in: generation)
        guard case .decide(nil) = senders.posted("menu", by: ":1.5", 2) else { throw Unexpected(step: "no answer") }
    }

    // Rules, a.5: only the answer of the bus decides. If it gave none, it is asked again.
    @Test func aFailureToAskSaysNothingOfTheSender() throws {
        var senders = KnownSenders<Int>()
        let generation = try asked(senders.posted("menu", by: ":1.5", 1))
        _ = senders.answered(":1.5", .unknown, in: generation)
        senders.settled(":1.5", in: generation)
        _ = try asked(senders.posted("menu", by: ":1.5", 2))
    }

    // Rules, a.5: the next bus gives the same unique names to others.
    @Test(arguments: [true, false]) func anAnswerOfTheBusBeforeSaysNothing(_ isKnown: Bool) throws {
        var senders = KnownSenders<Int>()
        let before = try asked(senders.posted("menu", by: ":1.5", 1))
        senders.forget()
        let now = try asked(senders.posted("order", by: ":1.5", 2))
        #expect(senders.answered(":1.5", isKnown ? .identity(root) : .gone, in: before).isEmpty)
        let step = senders.posted("menu", by: ":1.5", 3)
        guard case .wait = step else { throw Unexpected(step: "\(step)") }
        #expect(senders.answered(":1.5", .identity(.init(user: 7)), in: now).map(\.name) == ["order", "menu"])
    }
}
