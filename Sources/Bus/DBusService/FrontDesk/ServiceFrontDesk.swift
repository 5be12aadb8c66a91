// Inlinable, because services use these types for each call.

public struct CallAmount: Sendable, Hashable {
    public var calls: Int
    public var bytes: Int

    @inlinable public init(calls: Int = 0, bytes: Int = 0) { (self.calls, self.bytes) = (calls, bytes) }

    @inlinable public func hasRoom(for bytes: Int, within limit: CallAmount) -> Bool {
        calls < limit.calls && bytes <= limit.bytes - self.bytes
    }
}

/// The calls that each of many parties has waiting or in progress. Uses memory only for parties with calls. Pure.
public struct Quotas<Party: Hashable> {
    @usableFromInline var amounts: [Party: CallAmount] = [:]
    public private(set) var total = CallAmount()

    public init() {}

    @inlinable public subscript(party: Party) -> CallAmount { amounts[party] ?? CallAmount() }

    @inlinable public var parties: Int { amounts.count }

    public mutating func begin(_ bytes: Int, of party: Party) {
        amounts[party, default: CallAmount()].calls += 1
        amounts[party]?.bytes += bytes
        total = CallAmount(calls: total.calls + 1, bytes: total.bytes + bytes)
    }

    public mutating func begin(_ bytes: Int, of party: Party, within limit: CallAmount) -> Bool {
        guard self[party].hasRoom(for: bytes, within: limit) else { return false }
        begin(bytes, of: party)
        return true
    }

    /// Stops counting a call. No effect for a party without calls.
    public mutating func end(_ bytes: Int, of party: Party) {
        guard var amount = amounts[party] else { return }
        amount = CallAmount(calls: amount.calls - 1, bytes: amount.bytes - bytes)
        amounts[party] = amount.calls > 0 ? amount : nil
        total = CallAmount(calls: total.calls - 1, bytes: total.bytes - bytes)
    }
}

/// Admission to a service that many users call: each user's quota, and whose turn is next. Pure.
///
/// A call counts for its user. Until the bus has named the user, it counts for its connection.
public struct ServiceFrontDesk<Work> {
    public var users = Quotas<UInt32>()
    public var strangers = Quotas<String>()
    public var queue: FairQueue<Work>

    /// - Parameter lap: the number of calls of one user that have their turn before other users' calls.
    @inlinable public init(lap: Int) { queue = FairQueue(lap: lap) }

    /// A first call of an unknown user has room up to this size: others cannot make the service refuse a new process.
    public static var smallFirstCall: Int { 4 << 10 }

    /// Whether there is room for a call with this many bytes.
    ///
    /// - Parameters:
    ///   - limit: the limit of the user or of the connection.
    ///   - limitOfStrangers: the limit of all connections with unknown users together: one user may have hundreds of
    ///     them.
    public func hasRoom(
        for bytes: Int,
        of connection: String,
        _ user: UInt32?,
        within limit: CallAmount,
        limitOfStrangers: CallAmount
    ) -> Bool {
        if let user { return users[user].hasRoom(for: bytes, within: limit) }
        let own = strangers[connection]
        guard own.hasRoom(for: bytes, within: limit) else { return false }
        if own.calls == 0, bytes <= Self.smallFirstCall { return true }
        return strangers.total.hasRoom(for: bytes, within: limitOfStrangers)
    }

    /// Counts a call until ``end(_:of:_:)``.
    public mutating func begin(_ bytes: Int, of connection: String, _ user: UInt32?) {
        if let user { users.begin(bytes, of: user) } else { strangers.begin(bytes, of: connection) }
    }

    public mutating func end(_ bytes: Int, of connection: String, _ user: UInt32?) {
        if let user { users.end(bytes, of: user) } else { strangers.end(bytes, of: connection) }
    }
}

extension CallScheduler {
    /// How long a service works before it reads again: it must read faster than the bus writes.
    public static var shift: Duration { .milliseconds(1) }

    /// Works until the shift is over, or a step returns false: there is no work. Returns the time of the end.
    public func work(
        since start: ContinuousClock.Instant = .now,
        _ step: (ContinuousClock.Instant) -> Bool
    ) -> ContinuousClock.Instant {
        var now = start
        while now - start < Self.shift, step(now) { now = .now }
        return now
    }
}

// Inlinable: unspecialised, these two took a third of a service's time.

/// A first-in, first-out queue. It frees removed elements early: a user could keep it from ever being empty.
public struct Queue<Element> {
    @usableFromInline var elements: [Element] = []
    @usableFromInline var head = 0

    @inlinable public init() {}

    @inlinable public var isEmpty: Bool { head == elements.count }
    @inlinable public var count: Int { elements.count - head }
    @inlinable public var first: Element? { isEmpty ? nil : elements[head] }

    @inlinable public mutating func append(_ element: Element) { elements.append(element) }

    @inlinable public mutating func popFirst() -> Element? {
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

    @inlinable public mutating func prepend(_ others: some Sequence<Element>) {
        elements = Array(others) + Array(elements[head...])
        head = 0
    }

    @inlinable public mutating func remove(_ isRemoved: (Element) -> Bool) -> [Element] {
        let removed = Array(elements[head...].filter(isRemoved))
        if !removed.isEmpty {
            elements = Array(elements[head...].filter { !isRemoved($0) })
            head = 0
        }
        return removed
    }
}

/// The rate limit for a user's calls: `atOnce` calls as a burst, then one in each interval.
///
/// A bus allows a connection 128 unanswered calls, so a user with delayed responses floods the bus less. Otherwise all
/// users would wait in dbus-daemon's own queue for the service.
public struct CallPace: Sendable, Hashable {
    public var atOnce: Int
    public var interval: Duration

    public init(atOnce: Int, interval: Duration) { (self.atOnce, self.interval) = (atOnce, interval) }
}

/// A queue that is fair among users. Pure.
///
/// The oldest element comes first, with two exceptions. A user has at most one lap of turns before all other waiting
/// users had a turn, and no turns above the user's pace. The elements of one user stay in order.
public struct FairQueue<Element> {
    @usableFromInline var elements: [UInt32: Queue<Element>] = [:]
    @usableFromInline var order: TurnOrder

    /// - Parameter lap: the number of turns that one user has before the others. With 1, a flood delays other callers
    ///   least; with more, calls that several users make shortly after each other keep their order.
    @inlinable public init(lap: Int) { order = TurnOrder(lap: lap) }

    @inlinable public var isEmpty: Bool { elements.isEmpty }

    @inlinable public func count(of user: UInt32) -> Int { elements[user]?.count ?? 0 }

    /// - Parameters:
    ///   - isFree: whether the element is exempt from the user's pace. It keeps its place in the order.
    ///   - pace: the user's pace; `nil` for no limit.
    @inlinable public mutating func append(_ element: Element, of user: UInt32, isFree: Bool = false, pace: CallPace?) {
        elements[user, default: Queue()].append(element)
        order.append(user, isFree: isFree, pace)
    }

    /// Gives a user a turn at once if no element waits and the user's pace allows it. The caller then need not append
    /// the element, which saves memory.
    ///
    /// - Returns: whether the user has had the turn.
    @inlinable public mutating func pass(of user: UInt32, now: ContinuousClock.Instant, pace: CallPace?) -> Bool {
        elements.isEmpty && order.pass(user, now, pace)
    }

    /// The time of the next turn: `now` at the earliest; `nil` if no element waits.
    @inlinable public func timeOfNext(now: ContinuousClock.Instant) -> ContinuousClock.Instant? {
        order.timeOfNext(now)
    }

    /// Removes and returns the element whose turn it is by now.
    ///
    /// - Parameter pace: returns a user's pace; `nil` for no limit.
    @inlinable public mutating func next(now: ContinuousClock.Instant, pace: (UInt32) -> CallPace?) -> Element? {
        guard let user = order.next(now, pace), let element = elements[user]?.popFirst() else { return nil }
        if elements[user]?.isEmpty == true { elements[user] = nil }
        return element
    }
}

/// The order of the users' turns. Each operation takes time logarithmic in the number of users.
public struct TurnOrder {
    private struct Line {
        /// The waiting elements: the order of arrival, and whether they are exempt from the user's pace.
        var numbers = Queue<(number: UInt64, isFree: Bool)>()
        /// The lap of the user's next turn, and the number of turns that the user has had in it.
        var lap: UInt64
        var turnsOfLap = 0
    }

    /// The place of a user who may have a turn.
    private struct Place: Comparable {
        let lap: UInt64
        let number: UInt64
        let user: UInt32

        static func < (left: Self, right: Self) -> Bool {
            left.lap == right.lap ? left.number < right.number : left.lap < right.lap
        }
    }

    /// The time at which a user's pace permits the next turn.
    private struct Pause: Comparable {
        let end: ContinuousClock.Instant
        let user: UInt32

        static func < (left: Self, right: Self) -> Bool { left.end < right.end }
    }

    /// Users with waiting elements. Each has one place or one pause.
    private var lines: [UInt32: Line] = [:]
    private var ready = Heap<Place>()
    private var paused = Heap<Pause>()
    private var lastNumber: UInt64 = 0
    private var currentLap: UInt64 = 0
    /// For users with a pace: the time when their past turns would be over if each took one interval.
    private var taken: [UInt32: ContinuousClock.Instant] = [:]
    /// The number of entries in `taken` above which expired ones are removed.
    private var takenLimit = 64

    /// The number of users who call continuously and still get their full pace.
    private static let usersAtFullPace = 8

    private let turnsOfLap: Int

    public init(lap: Int) { turnsOfLap = lap }

    public mutating func append(_ user: UInt32, isFree: Bool, _ pace: CallPace?) {
        lastNumber += 1
        let isFirst = lines[user] == nil
        lines[user, default: Line(lap: currentLap)].numbers.append((lastNumber, isFree))
        if isFirst { queue(user, pace) }
    }

    public mutating func pass(_ user: UInt32, _ now: ContinuousClock.Instant, _ pace: CallPace?) -> Bool {
        guard start(of: user, pace) ?? now <= now else { return false }
        note(pace, of: user, now)
        return true
    }

    public func timeOfNext(_ now: ContinuousClock.Instant) -> ContinuousClock.Instant? {
        ready.first != nil ? now : paused.first.map { max(now, $0.end) }
    }

    public mutating func next(_ now: ContinuousClock.Instant, _ pace: (UInt32) -> CallPace?) -> UInt32? {
        while let pause = paused.first, pause.end <= now {
            _ = paused.popFirst()
            place(pause.user)
        }
        // Removed from the dictionary, because changing a copy of the line would copy its whole queue.
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

    /// Gives a user with waiting elements a place or a pause.
    private mutating func queue(_ user: UInt32, _ pace: CallPace?) {
        guard let first = lines[user]?.numbers.first else { return }
        if !first.isFree, let start = start(of: user, pace) { return paused.insert(Pause(end: start, user: user)) }
        place(user)
    }

    private mutating func place(_ user: UInt32) {
        guard let line = lines[user], let first = line.numbers.first else { return }
        ready.insert(Place(lap: max(line.lap, currentLap), number: first.number, user: user))
    }

    /// The time from which the pace permits the user a turn; `nil` for any time.
    private func start(of user: UInt32, _ pace: CallPace?) -> ContinuousClock.Instant? {
        guard let pace, let taken = taken[user] else { return nil }
        return taken - pace.interval * (pace.atOnce - 1)
    }

    private mutating func note(_ pace: CallPace?, of user: UInt32, _ now: ContinuousClock.Instant) {
        if let pace {
            let start = max(taken[user] ?? now, now)
            // Above eight, users at their pace share the rate of eight users, so that many users together do not take
            // all of this service's time. A user counts as being at its pace when half of its burst is used up: turns
            // come late, so a user never uses up all of it.
            let isAtPace = start - now >= pace.interval * pace.atOnce / 2
            let crowd = isAtPace ? max(lines.count, Self.usersAtFullPace) : Self.usersAtFullPace
            taken[user] = start + pace.interval * crowd / Self.usersAtFullPace
        }
        guard taken.count > takenLimit else { return }
        taken = taken.filter { $0.value > now }
        takenLimit = max(64, 2 * taken.count)
    }
}

/// A binary heap with the least element first.
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
            where child < elements.count && elements[child] < elements[least] { least = child }
            guard least != index else { return first }
            elements.swapAt(index, least)
            index = least
        }
    }
}
