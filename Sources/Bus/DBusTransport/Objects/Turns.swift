// Both types are inlinable: services ask them for each call, and as generic code of another module they took a third of a service's time for it.

/// First in, first out. It frees what was taken early: a user could keep the queue from ever being empty.
package struct Queue<Element> {
    @usableFromInline var elements: [Element] = []
    @usableFromInline var head = 0

    @inlinable package init() {}

    @inlinable package var isEmpty: Bool { head == elements.count }
    @inlinable package var first: Element? { isEmpty ? nil : elements[head] }

    @inlinable package mutating func append(_ element: Element) { elements.append(element) }

    @inlinable package mutating func popFirst() -> Element? {
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
    @inlinable package mutating func prepend(_ others: some Sequence<Element>) {
        elements = Array(others) + Array(elements[head...])
        head = 0
    }

    /// Removes those that fit, and returns them in order.
    @inlinable package mutating func remove(_ isRemoved: (Element) -> Bool) -> [Element] {
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
    @inlinable package static var lap: Int { 8 }

    @usableFromInline struct Line {
        @usableFromInline var elements = Queue<(number: UInt64, isFree: Bool, element: Element)>()
        @usableFromInline var count = 0
        @usableFromInline var turnsOfLap = 0

        @inlinable init() {}
    }

    /// Of users with something that waits.
    @usableFromInline var lines: [UInt32: Line] = [:]
    @usableFromInline var lastNumber: UInt64 = 0
    /// For users with a pace: when the turns that a user has had would be over, if each took one interval.
    @usableFromInline var taken: [UInt32: ContinuousClock.Instant] = [:]

    @inlinable package init() {}

    /// How many users have something that waits.
    @inlinable package var userCount: Int { lines.count }

    /// How much of a user waits.
    @inlinable package func count(of user: UInt32) -> Int { lines[user]?.count ?? 0 }

    /// - Parameter isFree: it has its place in the order, and is not counted in the user's pace.
    @inlinable package mutating func append(_ element: Element, of user: UInt32, isFree: Bool = false) {
        lastNumber += 1
        lines[user, default: Line()].elements.append((lastNumber, isFree, element))
        lines[user]?.count += 1
    }

    /// Gives a user a turn at once if nothing waits and the user's pace allows it. The caller then need not append the element, which saves room.
    ///
    /// - Returns: whether the user has had the turn.
    @inlinable package mutating func pass(of user: UInt32, now: ContinuousClock.Instant, pace: CallPace?) -> Bool {
        guard lines.isEmpty, start(of: user, pace) ?? now <= now else { return false }
        note(pace, of: user, now)
        return true
    }

    /// When the next turn is; `now` at the earliest, and `nil` where nothing waits.
    @inlinable package func timeOfNext(
        now: ContinuousClock.Instant,
        pace: (UInt32) -> CallPace?
    ) -> ContinuousClock.Instant? {
        lines.map { user, line in time(of: user, line, pace(user), now) }.min()
    }

    @inlinable func time(
        of user: UInt32,
        _ line: Line,
        _ pace: CallPace?,
        _ now: ContinuousClock.Instant
    ) -> ContinuousClock.Instant {
        guard line.elements.first?.isFree == false, let start = start(of: user, pace) else { return now }
        return max(now, start)
    }

    /// When the pace lets the user have a turn; `nil` for at any time.
    @inlinable func start(of user: UInt32, _ pace: CallPace?) -> ContinuousClock.Instant? {
        guard let pace, let taken = taken[user] else { return nil }
        return taken - pace.interval * (pace.atOnce - 1)
    }

    /// The user has had a turn.
    @inlinable mutating func note(_ pace: CallPace?, of user: UInt32, _ now: ContinuousClock.Instant) {
        if let pace { taken[user] = max(taken[user] ?? now, now) + pace.interval }
        // Those whose pace is whole again.
        if lines.isEmpty, !taken.isEmpty { taken = taken.filter { $0.value > now } }
    }

    /// The next that has its turn by now.
    ///
    /// - Parameter pace: of a user; `nil` for as fast as the others permit.
    @inlinable package mutating func next(now: ContinuousClock.Instant, pace: (UInt32) -> CallPace?) -> Element? {
        let users = lines.keys.filter { user in lines[user].map { time(of: user, $0, pace(user), now) <= now } ?? false
        }
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
        note(isFree ? nil : pace(user), of: user, now)
        return element
    }
}
