import Testing

@testable import Basics
@testable import DBusService

@Suite("Quotas of the callers of a service")
struct QuotaTests {
    private let limit = CallAmount(calls: 3, bytes: 100)

    @Test("a party has a quota of calls and bytes, and the end of its call frees a share")
    func limits() {
        var quotas = Quotas<UInt32>()
        let first = (0..<5).map { _ in quotas.begin(10, of: 1, within: limit) }
        #expect(first == [true, true, true, false, false])
        let others = [101, 100, 1].map { quotas.begin($0, of: 2, within: limit) }
        #expect(others == [false, true, false])
        quotas.end(10, of: 1)
        let next = (0..<2).map { _ in quotas.begin(80, of: 1, within: limit) }
        #expect(next == [true, false])
        #expect(quotas.total == CallAmount(calls: 4, bytes: 200) && quotas.parties == 2)
        var idle = Quotas<UInt32>()
        for _ in 0..<10 { idle.end(1000, of: 1) }
        idle.begin(1, of: 1)
        idle.end(1, of: 1)
        idle.end(1, of: 1)
        #expect(idle.parties == 0 && idle.total == CallAmount())
    }

    @Test("connections of unknown users share a limit, and each may make one small call")
    func strangers() {
        var desk = ServiceFrontDesk<Int>(lap: 1)
        func hasRoom(_ bytes: Int, _ connection: String, _ user: UInt32? = nil) -> Bool {
            let all = CallAmount(calls: 4, bytes: 1 << 20)
            return desk.hasRoom(for: bytes, of: connection, user, within: limit, limitOfStrangers: all)
        }
        for connection in ["a", "a", "b", "b"] { desk.begin(10, of: connection, nil) }
        #expect(!hasRoom(1, "a") && hasRoom(1, "c") && hasRoom(1, "a", 7))
        desk.end(10, of: "a", nil)
        #expect(hasRoom(1, "b") && !hasRoom(81, "b"))
    }
}

@Suite("Fair queueing between users")
struct FairQueueTests {
    private var queue = FairQueue<String>(lap: 1)
    private var now = ContinuousClock.now
    private let pace = CallPace(atOnce: 2, interval: .milliseconds(10))

    private mutating func add(_ count: Int, of user: UInt32, pace: CallPace? = nil) {
        for number in 0..<count { queue.append("\(user).\(number)", of: user, pace: pace) }
    }

    private mutating func taken(pace: CallPace? = nil) -> [String] {
        var taken: [String] = []
        while let next = queue.next(now: now, pace: { _ in pace }) { taken.append(next) }
        return taken
    }

    @Test("a late user waits for at most one call of each other user")
    mutating func late() {
        for user in 1...100 as ClosedRange<UInt32> { add(50, of: user) }
        for _ in 0..<150 { _ = queue.next(now: now) { _ in nil } }
        add(1, of: 200)
        let before = taken().prefix { $0 != "200.0" }
        #expect(before.count <= 100)
    }

    @Test("every call of each user gets its turn, in order")
    mutating func order() {
        for user in 1...3 as ClosedRange<UInt32> { add(4, of: user) }
        let taken = taken()
        #expect(taken.prefix(3) == ["1.0", "2.0", "3.0"])
        for user in 1...3 { #expect(taken.filter { $0.hasPrefix("\(user).") } == (0..<4).map { "\(user).\($0)" }) }
        #expect(queue.isEmpty && queue.timeOfNext(now: now) == nil)
    }

    @Test("a user over its pace waits, and another does not")
    mutating func paced() {
        add(3, of: 1, pace: pace)
        #expect(taken(pace: pace) == ["1.0", "1.1"])
        #expect(queue.timeOfNext(now: now) == now + .milliseconds(10))
        add(1, of: 2, pace: pace)
        #expect(taken(pace: pace) == ["2.0"])
        now += .milliseconds(10)
        #expect(taken(pace: pace) == ["1.2"])
    }

    @Test("a crowd at its pace gets at most the share of eight users", arguments: [8, 9, 15, 100, 1000])
    mutating func crowd(users: UInt32) {
        let pace = CallPace(atOnce: 64, interval: .milliseconds(10))
        // Each user first uses up the calls that it may make at once.
        for user in 1...users { add(80, of: user, pace: pace) }
        _ = taken(pace: pace)
        /// Returns the number of calls in this many intervals. Each turn comes a little late.
        func calls(intervals: Int) -> Int {
            let end = now + pace.interval * intervals
            var count = 0
            while let next = queue.timeOfNext(now: now), next < end {
                now = next + .microseconds(300)
                count += taken(pace: pace).count
                for user in 1...users where queue.count(of: user) < 4 { add(8, of: user, pace: pace) }
            }
            now = end
            return count
        }
        _ = calls(intervals: 500)
        let count = calls(intervals: 300)
        #expect((2000...2500).contains(count))
    }
}
