/// What waits for one observer. Pure: it decides what is kept, the registration delivers.
///
/// Elements come numbered, in rising order. What waits because of a suspension waits here too, under the same bound.
struct DeliveryQueue<Element> {
    private struct Entry {
        let number: UInt64
        let element: Element
    }

    private let buffering: Buffering
    private var waiting: [Entry] = []
    private var head = 0
    /// The last of each source since the suspension, until ``release()``; later than all of `waiting`.
    private var lastOfSource: [NotificationSource: Entry] = [:]
    private var isDraining = false
    /// Deliveries asked for one by one that have not run.
    private var asked = 0
    private(set) var isCancelled = false
    private(set) var counts = DeliveryCounts()

    init(_ buffering: Buffering) { self.buffering = buffering }

    /// How many wait.
    var count: Int { waiting.count - head + lastOfSource.count }

    // MARK: Taking in

    /// What became of an offered element.
    enum Offer {
        /// It waits, and one more delivery is due.
        case queued
        /// It waits in place of another, for whose delivery is due already.
        case replaced
        /// It is gone.
        case refused
    }

    mutating func offer(_ element: Element, number: UInt64) -> Offer {
        guard !isCancelled else { return .refused }
        if case .coalescing = buffering.policy, count > 0 {
            waiting[waiting.count - 1] = Entry(number: number, element: element)
            counts.coalesced += 1
            return .replaced
        }
        guard let isRoomMade = makeRoom() else { return .refused }
        waiting.append(Entry(number: number, element: element))
        return isRoomMade ? .replaced : .queued
    }

    /// Keeps it as the one of its source, in the place of its own arrival (CF-S4, CF-S11).
    mutating func coalesce(_ element: Element, number: UInt64, source: NotificationSource) {
        guard !isCancelled else { return }
        if lastOfSource[source] != nil {
            counts.coalesced += 1
        } else if makeRoom() == nil {
            return
        }
        lastOfSource[source] = Entry(number: number, element: element)
    }

    /// Counts one that the observer does not get because it is suspended (CF-S3).
    mutating func suppress() {
        if !isCancelled { counts.suppressed += 1 }
    }

    /// Has one more wait, by the bound's policy.
    ///
    /// - Returns: whether another had to go for it; `nil` where it is the new one that goes.
    private mutating func makeRoom() -> Bool? {
        switch buffering.policy {
        case .oldest(let limit) where count >= limit:
            counts.dropped += 1
            return nil
        case .newest(let limit) where count >= limit:
            dropFirst()
            counts.dropped += 1
            return true
        case .coalescing, .oldest, .newest, .unbounded:
            return false
        }
    }

    private mutating func dropFirst() {
        if head < waiting.count {
            _ = takeFirst()
        } else if let first = lastOfSource.min(by: { $0.value.number < $1.value.number }) {
            lastOfSource[first.key] = nil
        }
    }

    // MARK: Giving out

    /// Ends the coalescing: what waits from now on is apart from what has waited so far.
    ///
    /// - Returns: the numbers of all that wait, in order.
    mutating func release() -> [UInt64] {
        waiting += lastOfSource.values.sorted { $0.number < $1.number }
        lastOfSource = [:]
        return waiting[head...].map(\.number)
    }

    /// The next element to deliver, of those numbered below `limit`; `nil` where none waits or the registration ended.
    mutating func next(below limit: UInt64) -> Element? {
        guard !isCancelled, head < waiting.count, waiting[head].number < limit else { return nil }
        counts.delivered += 1
        return takeFirst()
    }

    /// How many that wait no delivery was asked for: the last ones.
    var unaskedCount: Int { max(0, count - asked) }

    /// Counts a delivery that is asked for.
    mutating func ask() { asked += 1 }

    /// As ``next(below:)``, for a delivery that was asked for.
    mutating func nextAsked(below limit: UInt64) -> Element? {
        asked -= 1
        return next(below: limit)
    }

    /// Whether the caller is to begin a drain, because none is under way.
    mutating func beginDrain() -> Bool {
        guard !isDraining else { return false }
        isDraining = true
        return true
    }

    /// As ``next(below:)``; where there is none, the drain is over.
    mutating func nextOfDrain(below limit: UInt64) -> Element? {
        let element = next(below: limit)
        if element == nil { isDraining = false }
        return element
    }

    /// Whether a delivery that needs no queue may go ahead, because nothing waits before it.
    mutating func passThrough(_ number: UInt64, below limit: UInt64) -> Bool {
        guard !isCancelled, head == waiting.count, number < limit else { return false }
        counts.delivered += 1
        return true
    }

    /// Nothing is taken in or given out any more (CF-R7, CF-S12).
    mutating func cancel() {
        isCancelled = true
        waiting = []
        lastOfSource = [:]
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
        return waiting[head].element
    }
}
