import Basics
import DBus
import NotifyCenter
import Synchronization
import Testing

@Suite("The local center delivers on the poster's thread and in order")
struct LocalNotifyCenterTests {
    private final class Thing: Sendable {}

    private let center = LocalNotifyCenter()
    private let log = Log()

    /// The recorded calls, in order.
    private final class Log: Sendable {
        private let entries = Locked<[String]>([])
        var all: [String] { entries.withLock { $0 } }
        func add(_ entry: String) { entries.withLock { $0.append(entry) } }
    }

    // CF-D1, CF-D3, CF-A5
    @Test("post calls each registration in order, and equal ones twice")
    func order() {
        let observations = ["a", "b", "a"].map { name in center.observe("n") { [log] _ in log.add(name) } }
        center.post("n")
        #expect(log.all == ["a", "b", "a"])
        withExtendedLifetime(observations) {}
    }

    // CF-A4, CF-P2, CF-M5, CF-D6
    @Test("objects are compared by identity; observers of any name get the posted name")
    func matching() {
        let (one, other) = (Thing(), Thing())
        let observations = [
            center.observe("n", object: one) { [log] _ in log.add("one") },
            center.observe(nil) { [log] in log.add("any: \($0.name)") },
            center.observe(nil, object: one) { [log] _ in log.add("any of one") },
        ]
        center.post("n")
        center.post("n", object: other)
        center.post("m", object: one)
        #expect(log.all == ["any: n", "any: n", "any: m", "any of one"])
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

    // CF-C2, CF-C3, CF-R7
    @Test("a handler may remove itself and observers that have not been called yet")
    func removingInside() {
        let observations = Locked<[NotificationObservation]>([])
        observations.withLock { list in
            list.append(
                center.observe("n") { [log] _ in
                    log.add("first")
                    let all = observations.withLock { $0 }
                    for observation in all { observation.cancel() }
                }
            )
            list.append(center.observe("n") { [log] _ in log.add("second") })
        }
        center.post("n")
        center.post("n")
        #expect(log.all == ["first"])
    }

    // CF-C4
    @Test("a post inside a handler is delivered before the outer post continues")
    func nestedPost() {
        let observations = [
            center.observe("outer") { [log, center] _ in
                log.add("outer 1")
                center.post("inner")
            },
            center.observe("inner") { [log] _ in log.add("inner") },
            center.observe("outer") { [log] _ in log.add("outer 2") },
        ]
        center.post("outer")
        #expect(log.all == ["outer 1", "inner", "outer 2"])
        withExtendedLifetime(observations) {}
    }

    // CF-C5
    @Test("a deinitialiser may post")
    func postFromDeinit() {
        final class Poster: Sendable {
            let center: LocalNotifyCenter
            init(_ center: LocalNotifyCenter) { self.center = center }
            deinit { center.post("gone") }
        }
        let observation = center.observe("gone") { [log] _ in log.add("gone") }
        var held: NotificationObservation? = nil
        do {
            let poster = Poster(center)
            held = center.observe("n") { _ in withExtendedLifetime(poster) {} }
        }
        #expect(log.all.isEmpty)
        withExtendedLifetime(held) {}
        held = nil
        #expect(log.all == ["gone"])
        withExtendedLifetime(observation) {}
    }

    // CF-U3
    @Test("userInfo and object arrive as posted")
    func payload() {
        let thing = Thing()
        let observation = center.observe("n") { [log] notification in
            if notification.object === thing, notification.userInfo?["key"] as? Int == 1 { log.add("same") }
        }
        center.post("n", object: thing, userInfo: ["key": 1])
        #expect(log.all == ["same"])
        withExtendedLifetime(observation) {}
    }

    // CF-C6
    @Test("concurrent adding, removing and posting neither crashes nor loses a count")
    func contention() async {
        let steady = center.observe("n") { _ in }
        await withTaskGroup { group in
            for _ in 0..<4 {
                group.addTask { [center] in
                    for _ in 0..<500 {
                        let observation = center.observe("n") { _ in }
                        center.post("n")
                        observation.cancel()
                    }
                }
            }
        }
        #expect(steady.counts.delivered == 2000)
    }

    @Test("the deinit of the token removes the observer")
    func tokenLifetime() {
        do {
            let observation = center.observe("n") { [log] _ in log.add("called") }
            withExtendedLifetime(observation) {}
        }
        center.post("n")
        #expect(log.all.isEmpty)
    }
}
