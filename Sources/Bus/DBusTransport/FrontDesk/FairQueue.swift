// Both types are inlinable: services ask them for each call, and as generic code of another module they took a third of a service's time for it.

/// First in, first out. It frees what was taken early: a user could keep the queue from ever being empty.
package struct Queue<Element> {
    @usableFromInline var elements: [Element] = []
    @usableFromInline var head = 0

    @inlinable package init() {}

    @inlinable package var isEmpty: Bool { head == elements.count }
    @inlinable package var count: Int { elements.count - head }
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

/// What waits for its turn: the oldest first, but of one user no more than a lap before all others had a turn, and no faster than the user's pace.
/// Each user's stays in order. Pure.
package struct FairQueue<Element> {
    @usableFromInline var elements: [UInt32: Queue<Element>] = [:]
    @usableFromInline var order: TurnOrder

    /// - Parameter lap: how much of one user has its turn before the others'. With one, a caller waits least for a flood; with more, what several users
    ///   do shortly after each other keeps its order.
    @inlinable package init(lap: Int) { order = TurnOrder(lap: lap) }

    @inlinable package var isEmpty: Bool { elements.isEmpty }

    /// How much of a user waits.
    @inlinable package func count(of user: UInt32) -> Int { elements[user]?.count ?? 0 }

    /// - Parameters:
    ///   - isFree: it has its place in the order, and is not counted in the user's pace.
    ///   - pace: the user's; `nil` for as fast as the others permit.
    @inlinable package mutating func append(_ element: Element, of user: UInt32, isFree: Bool = false, pace: CallPace?)
    {
        elements[user, default: Queue()].append(element)
        order.append(user, isFree: isFree, pace)
    }

    /// Gives a user a turn at once if nothing waits and the user's pace allows it. The caller then need not append the element, which saves room.
    ///
    /// - Returns: whether the user has had the turn.
    @inlinable package mutating func pass(of user: UInt32, now: ContinuousClock.Instant, pace: CallPace?) -> Bool {
        elements.isEmpty && order.pass(user, now, pace)
    }

    /// When the next turn is; `now` at the earliest, and `nil` where nothing waits.
    @inlinable package func timeOfNext(now: ContinuousClock.Instant) -> ContinuousClock.Instant? {
        order.timeOfNext(now)
    }

    /// The next that has its turn by now.
    ///
    /// - Parameter pace: of a user; `nil` for as fast as the others permit.
    @inlinable package mutating func next(now: ContinuousClock.Instant, pace: (UInt32) -> CallPace?) -> Element? {
        guard let user = order.next(now, pace), let element = elements[user]?.popFirst() else { return nil }
        if elements[user]?.isEmpty == true { elements[user] = nil }
        return element
    }
}

/// In which order users have their turns. Each operation takes as long as the logarithm of the number of users.
package struct TurnOrder {
    private struct Line {
        /// What waits: when it came, and whether it is not counted in the user's pace.
        var numbers = Queue<(number: UInt64, isFree: Bool)>()
        /// The lap in which the user has the next turn, and the user's turns of that lap.
        var lap: UInt64
        var turnsOfLap = 0
    }

    /// The place of a user among those who may have a turn.
    private struct Place: Comparable {
        let lap: UInt64
        let number: UInt64
        let user: UInt32

        static func < (left: Self, right: Self) -> Bool {
            left.lap == right.lap ? left.number < right.number : left.lap < right.lap
        }
    }

    /// When the pace of a user permits the next turn.
    private struct Pause: Comparable {
        let end: ContinuousClock.Instant
        let user: UInt32

        static func < (left: Self, right: Self) -> Bool { left.end < right.end }
    }

    /// Of users with something that waits. Each user has one place or one pause.
    private var lines: [UInt32: Line] = [:]
    private var ready = Heap<Place>()
    private var paused = Heap<Pause>()
    private var lastNumber: UInt64 = 0
    private var currentLap: UInt64 = 0
    /// For users with a pace: when the turns that a user has had would be over, if each took one interval.
    private var taken: [UInt32: ContinuousClock.Instant] = [:]
    /// How many of these there may be until those whose pace is whole again are forgotten.
    private var takenLimit = 64

    /// How many users who call without end have all of their pace.
    private static let usersAtFullPace = 8

    private let turnsOfLap: Int

    package init(lap: Int) { turnsOfLap = lap }

    package mutating func append(_ user: UInt32, isFree: Bool, _ pace: CallPace?) {
        lastNumber += 1
        let isFirst = lines[user] == nil
        lines[user, default: Line(lap: currentLap)].numbers.append((lastNumber, isFree))
        if isFirst { queue(user, pace) }
    }

    package mutating func pass(_ user: UInt32, _ now: ContinuousClock.Instant, _ pace: CallPace?) -> Bool {
        guard start(of: user, pace) ?? now <= now else { return false }
        note(pace, of: user, now)
        return true
    }

    package func timeOfNext(_ now: ContinuousClock.Instant) -> ContinuousClock.Instant? {
        ready.first != nil ? now : paused.first.map { max(now, $0.end) }
    }

    package mutating func next(_ now: ContinuousClock.Instant, _ pace: (UInt32) -> CallPace?) -> UInt32? {
        while let pause = paused.first, pause.end <= now {
            _ = paused.popFirst()
            place(pause.user)
        }
        // Taken out, because a copy of the line would copy all of it.
        guard let place = ready.popFirst(), var line = lines.removeValue(forKey: place.user),
            let first = line.numbers.popFirst()
        else { return nil }
        let (user, pace) = (place.user, pace(place.user))
        currentLap = max(currentLap, place.lap)
        if line.lap < place.lap { (line.lap, line.turnsOfLap) = (place.lap, 0) }
        line.turnsOfLap += 1
        if line.turnsOfLap >= turnsOfLap { (line.lap, line.turnsOfLap) = (place.lap + 1, 0) }
        if !line.numbers.isEmpty { lines[user] = line }
        note(first.isFree ? nil : pace, of: user, now)
        queue(user, pace)
        return user
    }

    /// Gives the user of a line a place, or a pause.
    private mutating func queue(_ user: UInt32, _ pace: CallPace?) {
        guard let first = lines[user]?.numbers.first else { return }
        if !first.isFree, let start = start(of: user, pace) { return paused.insert(Pause(end: start, user: user)) }
        place(user)
    }

    private mutating func place(_ user: UInt32) {
        guard let line = lines[user], let first = line.numbers.first else { return }
        ready.insert(Place(lap: max(line.lap, currentLap), number: first.number, user: user))
    }

    /// When the pace lets the user have a turn; `nil` for at any time.
    private func start(of user: UInt32, _ pace: CallPace?) -> ContinuousClock.Instant? {
        guard let pace, let taken = taken[user] else { return nil }
        return taken - pace.interval * (pace.atOnce - 1)
    }

    /// The user has had a turn.
    private mutating func note(_ pace: CallPace?, of user: UInt32, _ now: ContinuousClock.Instant) {
        if let pace {
            let start = max(taken[user] ?? now, now)
            // The users who are at their pace share what so many of them may have, so that a crowd does not take all of this service's time.
            let isAtPace = start - now >= pace.interval * (pace.atOnce - 1)
            let crowd = isAtPace ? max(lines.count, Self.usersAtFullPace) : Self.usersAtFullPace
            taken[user] = start + pace.interval * crowd / Self.usersAtFullPace
        }
        guard taken.count > takenLimit else { return }
        taken = taken.filter { $0.value > now }
        takenLimit = max(64, 2 * taken.count)
    }
}

/// A heap: the least element first.
struct Heap<Element: Comparable> {
    private var elements: [Element] = []

    var first: Element? { elements.first }

    mutating func insert(_ element: Element) {
        elements.append(element)
        var index = elements.count - 1
        while index > 0, elements[index] < elements[(index - 1) / 2] {
            elements.swapAt(index, (index - 1) / 2)
            index = (index - 1) / 2
        }
    }

    mutating func popFirst() -> Element? {
        guard let last = elements.popLast() else { return nil }
        guard let first = elements.first else { return last }
        elements[0] = last
        var index = 0
        while true {
            var least = index
            for child in [2 * index + 1, 2 * index + 2]
            where child < elements.count && elements[child] < elements[least] {
                least = child
            }
            guard least != index else { return first }
            elements.swapAt(index, least)
            index = least
        }
    }
}
