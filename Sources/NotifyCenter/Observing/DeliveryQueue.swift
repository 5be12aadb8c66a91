/// What waits for one observer. Pure: it decides what is kept, the registration delivers.
struct DeliveryQueue<Element> {
    private let buffering: Buffering
    private var waiting: [Element] = []
    private var head = 0
    private var isDraining = false
    private(set) var isCancelled = false
    private(set) var counts = DeliveryCounts()

    init(_ buffering: Buffering) { self.buffering = buffering }

    private var count: Int { waiting.count - head }

    /// What became of an offered element.
    enum Offer {
        /// It waits, and one more delivery is due.
        case queued
        /// It waits in place of another, for whose delivery is due already.
        case replaced
        /// It is gone.
        case refused
    }

    mutating func offer(_ element: Element) -> Offer {
        guard !isCancelled else { return .refused }
        switch buffering.policy {
        case .coalescing:
            guard count > 0 else { break }
            waiting[waiting.count - 1] = element
            counts.coalesced += 1
            return .replaced
        case .oldest(let limit):
            guard count >= limit else { break }
            counts.dropped += 1
            return .refused
        case .newest(let limit):
            guard count >= limit else { break }
            _ = takeFirst()
            waiting.append(element)
            counts.dropped += 1
            return .replaced
        case .unbounded:
            break
        }
        waiting.append(element)
        return .queued
    }

    /// The next element to deliver; `nil` where none waits or the registration ended.
    mutating func next() -> Element? {
        guard !isCancelled, count > 0 else { return nil }
        counts.delivered += 1
        return takeFirst()
    }

    /// Whether the caller is to begin a drain, because none is under way.
    mutating func beginDrain() -> Bool {
        guard !isDraining else { return false }
        isDraining = true
        return true
    }

    /// As ``next()``; where nothing waits, the drain is over.
    mutating func nextOfDrain() -> Element? {
        let element = next()
        if element == nil { isDraining = false }
        return element
    }

    /// Whether a delivery that needs no queue may go ahead.
    mutating func passThrough() -> Bool {
        guard !isCancelled else { return false }
        counts.delivered += 1
        return true
    }

    /// Counts a notification that the handler took and then let go for the sake of another.
    mutating func countDisplaced() {
        counts.delivered -= 1
        if case .coalescing = buffering.policy { counts.coalesced += 1 } else { counts.dropped += 1 }
    }

    mutating func cancel() {
        isCancelled = true
        waiting = []
        head = 0
    }

    private mutating func takeFirst() -> Element {
        defer {
            head += 1
            // Amortised: each element is moved at most once.
            if head * 2 > waiting.count {
                waiting.removeFirst(head)
                head = 0
            }
        }
        return waiting[head]
    }
}

/// What happened to the notifications for an observer, or for all of a center.
public struct DeliveryCounts: Sendable, Hashable {
    /// Handed to the observer, or put into the buffer of its sequence.
    public internal(set) var delivered: UInt64 = 0
    /// Merged into a later one, which was delivered or waits (Darwin center).
    public internal(set) var coalesced: UInt64 = 0
    /// Lost because the observer's buffer was full.
    public internal(set) var dropped: UInt64 = 0
}

extension DeliveryCounts {
    mutating func add(_ other: DeliveryCounts) {
        delivered += other.delivered
        coalesced += other.coalesced
        dropped += other.dropped
    }
}
