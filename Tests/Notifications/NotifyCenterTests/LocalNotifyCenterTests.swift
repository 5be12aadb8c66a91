import Basics
import NotifyCenter
import Synchronization
import Testing

@Suite("The local center delivers on the poster's thread and in order")
struct LocalNotifyCenterTests {
    private final class Thing: Sendable {}

    private let center = LocalNotifyCenter()
    private let log = Log()

    // CF-D1, CF-D3, CF-A5, CF-C4
    @Test("a post calls the registrations with a token in order, also inside a handler")
    func order() {
        let observations = ["a", "b", "a"].map { name in center.observe("n") { [log] _ in log.add(name) } }
        do {
            let observation = center.observe("n") { [log] _ in log.add("its token is gone") }
            withExtendedLifetime(observation) {}
        }
        center.post("n")
        #expect(log.take() == ["a", "b", "a"])
        let nested = [
            center.observe("outer") { [log, center] _ in
                log.add("outer 1")
                center.post("inner")
            },
            center.observe("inner") { [log] _ in log.add("inner") },
            center.observe("outer") { [log] _ in log.add("outer 2") },
        ]
        center.post("outer")
        #expect(log.all == ["outer 1", "inner", "outer 2"])
        withExtendedLifetime((observations, nested)) {}
    }

    // CF-A4, CF-P2, CF-M5, CF-D6, CF-U3
    @Test("objects are compared by identity; name, object and userInfo arrive as posted")
    func matching() {
        let (one, other) = (Thing(), Thing())
        let observations = [
            center.observe("n", object: one) { [log] _ in log.add("one") },
            center.observe(nil) { [log] in log.add("any: \($0.name) \($0.userInfo?["key"] as? Int ?? 0)") },
            center.observe(nil, object: one) { [log] in log.add("any of one: \($0.object === one)") },
        ]
        center.post("n")
        center.post("n", object: other)
        center.post("m", object: one, userInfo: ["key": 1])
        #expect(log.all == ["any: n 0", "any: n 0", "any: m 1", "any of one: true"])
        withExtendedLifetime(observations) {}
    }

    // CF-C1, CF-A6
    @Test("an observer added by a handler is called for the next post, not for this one")
    func addingInside() {
        let added = Locked<NotificationObservation?>(nil)
        let first = center.observe("n") { [log, center] _ in
            log.add("first")
            added.withLock { added in
                if added == nil { added = center.observe("n") { _ in log.add("second") } }
            }
        }
        center.post("n")
        #expect(log.all == ["first"])
        center.post("n")
        #expect(log.all == ["first", "first", "second"])
        withExtendedLifetime(first) {}
    }
}
