/// First in, first out. It frees what was taken early: a user could keep the queue from ever being empty.
package struct Queue<Element> {
    private var elements: [Element] = []
    private var head = 0

    package init() {}

    package var isEmpty: Bool { head == elements.count }
    package var first: Element? { isEmpty ? nil : elements[head] }

    package mutating func append(_ element: Element) { elements.append(element) }

    package mutating func popFirst() -> Element? {
        guard head < elements.count else { return nil }
        defer {
            head += 1
            if head == elements.count {
                elements.removeAll(keepingCapacity: head < 4096)
                head = 0
            } else if head >= 64, head * 2 >= elements.count {
                elements.removeFirst(head)
                head = 0
            }
        }
        return elements[head]
    }

    /// Puts the others before all that is there.
    package mutating func prepend(_ others: some Sequence<Element>) {
        elements = Array(others) + Array(elements[head...])
        head = 0
    }

    /// Removes those that fit, and returns them in order.
    package mutating func remove(_ isRemoved: (Element) -> Bool) -> [Element] {
        let removed = Array(elements[head...].filter(isRemoved))
        if !removed.isEmpty {
            elements = Array(elements[head...].filter { !isRemoved($0) })
            head = 0
        }
        return removed
    }
}

/// How fast the calls of a user have their turn: so many at once, then one in each interval. A bus lets a connection have 128 unanswered calls, so a
/// user who gets its answers later floods the bus less: otherwise dbus-daemon's own queue for the service would be where everybody waits.
package struct CallPace: Sendable, Hashable {
    package var atOnce: Int
    package var interval: Duration

    package init(atOnce: Int, interval: Duration) {
        self.atOnce = atOnce
        self.interval = interval
    }
}

/// What waits for its turn: the oldest first, but of one user no more than a few before all others had a turn, and no faster than the user's pace.
/// Each user's stays in order. Pure.
package struct Turns<Element> {
    /// How much of one user has its turn before the others'.
    package static var lap: Int { 8 }

    private struct Line {
        var elements = Queue<(number: UInt64, isFree: Bool, element: Element)>()
        var count = 0
        var turnsOfLap = 0
    }

    /// Of users with something that waits.
    private var lines: [UInt32: Line] = [:]
    private var lastNumber: UInt64 = 0
    /// Up to when the turns that users with a pace have had last, one in each interval.
    private var taken: [UInt32: ContinuousClock.Instant] = [:]

    package init() {}

    /// How many users have something that waits.
    package var userCount: Int { lines.count }

    /// How much of a user waits.
    package func count(of user: UInt32) -> Int { lines[user]?.count ?? 0 }

    /// - Parameter isFree: it has its place in the order, and is not counted in the user's pace.
    package mutating func append(_ element: Element, of user: UInt32, isFree: Bool = false) {
        lastNumber += 1
        lines[user, default: Line()].elements.append((lastNumber, isFree, element))
        lines[user]?.count += 1
    }

    /// When the next turn is; `now` at the earliest, and `nil` where nothing waits.
    package func timeOfNext(now: ContinuousClock.Instant, pace: (UInt32) -> CallPace?) -> ContinuousClock.Instant? {
        lines.keys.map { time(of: $0, pace($0), now) }.min()
    }

    private func time(of user: UInt32, _ pace: CallPace?, _ now: ContinuousClock.Instant) -> ContinuousClock.Instant {
        guard let pace, let taken = taken[user], lines[user]?.elements.first?.isFree == false else { return now }
        return max(now, taken - pace.interval * (pace.atOnce - 1))
    }

    /// The next that has its turn by now.
    ///
    /// - Parameter pace: of a user; `nil` for as fast as the others permit.
    package mutating func next(now: ContinuousClock.Instant, pace: (UInt32) -> CallPace?) -> Element? {
        let users = lines.keys.filter { time(of: $0, pace($0), now) <= now }
        guard !users.isEmpty else { return nil }
        if users.allSatisfy({ lines[$0]?.turnsOfLap ?? 0 >= Self.lap }) {
            for user in users { lines[user]?.turnsOfLap = 0 }
        }
        let next = users.filter { lines[$0]?.turnsOfLap ?? 0 < Self.lap }
            .min { lines[$0]?.elements.first?.number ?? 0 < lines[$1]?.elements.first?.number ?? 0 }
        guard let user = next, let (_, isFree, element) = lines[user]?.elements.popFirst() else { return nil }
        lines[user]?.turnsOfLap += 1
        lines[user]?.count -= 1
        if lines[user]?.elements.isEmpty == true { lines[user] = nil }
        if let pace = pace(user), !isFree { taken[user] = max(taken[user] ?? now, now) + pace.interval }
        // Those whose pace is whole again.
        if lines.isEmpty { taken = taken.filter { $0.value > now } }
        return element
    }
}
