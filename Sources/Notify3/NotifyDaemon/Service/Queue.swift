/// First in, first out. It frees what was taken early: a user could keep the queue from ever being empty.
struct Queue<Element> {
    private var elements: [Element] = []
    private var head = 0

    var isEmpty: Bool { head == elements.count }
    var first: Element? { isEmpty ? nil : elements[head] }

    mutating func append(_ element: Element) { elements.append(element) }

    mutating func popFirst() -> Element? {
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
    mutating func prepend(_ others: some Sequence<Element>) {
        elements = Array(others) + Array(elements[head...])
        head = 0
    }

    /// Removes those that fit, and returns them in order.
    mutating func remove(_ isRemoved: (Element) -> Bool) -> [Element] {
        let removed = Array(elements[head...].filter(isRemoved))
        if !removed.isEmpty {
            elements = Array(elements[head...].filter { !isRemoved($0) })
            head = 0
        }
        return removed
    }
}

/// What waits for its turn: the oldest first, but of one user no more than a few before all others had a turn. Each user's stays in order.
/// Pure.
struct Turns<Element> {
    /// How much of one user has its turn before the others'.
    static var lap: Int { 8 }

    private struct Line {
        var elements = Queue<(number: UInt64, Element)>()
        var turnsOfLap = 0
    }

    /// Of users with something that waits.
    private var lines: [UInt32: Line] = [:]
    private var lastNumber: UInt64 = 0

    var userCount: Int { lines.count }

    mutating func append(_ element: Element, of user: UInt32) {
        lastNumber += 1
        lines[user, default: Line()].elements.append((lastNumber, element))
    }

    mutating func next() -> Element? {
        guard !lines.isEmpty else { return nil }
        if lines.values.allSatisfy({ $0.turnsOfLap >= Self.lap }) {
            for user in lines.keys { lines[user]?.turnsOfLap = 0 }
        }
        let next = lines.lazy.filter { $0.value.turnsOfLap < Self.lap }
            .min { $0.value.elements.first?.number ?? 0 < $1.value.elements.first?.number ?? 0 }
        guard let user = next?.key, let (_, element) = lines[user]?.elements.popFirst() else { return nil }
        lines[user]?.turnsOfLap += 1
        if lines[user]?.elements.isEmpty == true { lines[user] = nil }
        return element
    }
}
