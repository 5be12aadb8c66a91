/// The queue of one observer. Pure: it decides which elements are kept; the registration delivers them.
///
/// Elements are numbered in ascending order. Elements that wait for the end of a suspension are in this queue too,
/// under the same limits.
struct DeliveryQueue<Element> {
    private struct Entry {
        let number: UInt64
        let bytes: Int
        /// `nil` once it is taken. The memory is freed at once, the place in the array later.
        var element: Element?
    }

    private let buffering: Buffering
    private var waiting: [Entry] = []
    private var head = 0
    /// The last element of each source since the suspension, until ``release()``. All are later than those in
    /// `waiting`.
    private var lastOfSource: [NotificationSource: Entry] = [:]
    /// The arrivals of these elements in order, from ``firstArrival`` on. An entry is stale if its source has a later
    /// one.
    private var arrivals: [(number: UInt64, source: NotificationSource)] = []
    private var firstArrival = 0
    /// The bytes of all waiting elements.
    private var bytes = 0
    /// The number of jobs that were requested and have not ended.
    private var jobs = 0
    private(set) var isCancelled = false
    private(set) var counts = DeliveryCounts()

    init(_ buffering: Buffering) { self.buffering = buffering }

    var count: Int { waiting.count - head + lastOfSource.count }

    // MARK: Taking in

    /// Adds an element for delivery.
    ///
    /// - Parameter bytes: the size, as ``NotificationSize`` counts it.
    mutating func offer(_ element: Element, number: UInt64, bytes: Int) {
        guard !isCancelled else { return }
        if case .coalescing = buffering.policy, head < waiting.count {
            self.bytes -= waiting[waiting.count - 1].bytes
            waiting.removeLast()
            counts.coalesced += 1
        }
        guard makeRoom(for: bytes) else { return }
        waiting.append(Entry(number: number, bytes: bytes, element: element))
        self.bytes += bytes
    }

    /// Keeps the element as the only one of its source, at the position of the new arrival (CF-S4, CF-S11).
    mutating func coalesce(_ element: Element, number: UInt64, bytes: Int, source: NotificationSource) {
        guard !isCancelled else { return }
        let last = lastOfSource.removeValue(forKey: source)
        self.bytes -= last?.bytes ?? 0
        let new = makeRoom(for: bytes) ? Entry(number: number, bytes: bytes, element: element) : nil
        if last != nil, new != nil { counts.coalesced += 1 }
        lastOfSource[source] = new ?? last
        self.bytes += (new ?? last)?.bytes ?? 0
        if new != nil { noteArrival(number, source) }
    }

    /// Counts an element that the observer does not get because the center is suspended (CF-S3).
    mutating func suppress() {
        if !isCancelled { counts.suppressed += 1 }
    }

    /// Drops elements as the policy says, so that another one fits.
    ///
    /// - Returns: whether there is room; if not, the new element is dropped.
    private mutating func makeRoom(for new: Int) -> Bool {
        switch buffering.policy {
        case .oldest(let limit):
            guard isOver(limit, with: new) else { return true }
            counts.dropped += 1
            return false
        case .newest(let limit):
            while count > 0, isOver(limit, with: new) {
                dropFirst()
                counts.dropped += 1
            }
            return true
        case .coalescing, .unbounded:
            return true
        }
    }

    private func isOver(_ limit: Int, with new: Int) -> Bool {
        count >= limit || bytes + new > Buffering.maximumBytes
    }

    private mutating func dropFirst() {
        if head < waiting.count {
            _ = takeFirst()
            return
        }
        while firstArrival < arrivals.count {
            let (number, source) = arrivals[firstArrival]
            firstArrival += 1
            guard let entry = lastOfSource[source], entry.number == number else { continue }
            bytes -= entry.bytes
            lastOfSource[source] = nil
            return
        }
    }

    /// Notes an arrival. Compacts the list when most entries are stale, so that each is moved a bounded number of
    /// times.
    private mutating func noteArrival(_ number: UInt64, _ source: NotificationSource) {
        arrivals.append((number, source))
        guard arrivals.count > 2 * lastOfSource.count + 64 else { return }
        arrivals = arrivals[firstArrival...].filter { lastOfSource[$0.source]?.number == $0.number }
        firstArrival = 0
    }

    // MARK: Giving out

    /// Ends the coalescing: later elements do not replace the waiting ones.
    ///
    /// - Returns: the numbers of all waiting elements, in order.
    mutating func release() -> [UInt64] {
        waiting += lastOfSource.values.sorted { $0.number < $1.number }
        lastOfSource = [:]
        arrivals = []
        firstArrival = 0
        return waiting[head...].map(\.number)
    }

    /// Takes the next element below `limit` for delivery; `nil` if none waits or the registration ended.
    mutating func next(below limit: UInt64) -> Element? {
        guard !isCancelled, head < waiting.count, waiting[head].number < limit else { return nil }
        counts.delivered += 1
        return takeFirst()
    }

    /// Whether an element may be delivered without the queue, because nothing waits before it.
    mutating func passThrough(_ number: UInt64, below limit: UInt64) -> Bool {
        guard !isCancelled, head == waiting.count, number < limit else { return false }
        counts.delivered += 1
        return true
    }

    /// Drops everything. After this nothing is added or taken (CF-R7, CF-S12).
    mutating func cancel() {
        isCancelled = true
        waiting = []
        lastOfSource = [:]
        arrivals = []
        firstArrival = 0
        head = 0
        bytes = 0
    }

    private mutating func takeFirst() -> Element? {
        let first = waiting[head]
        waiting[head].element = nil
        bytes -= first.bytes
        head += 1
        if head == waiting.count {
            // The memory is kept for the next elements.
            waiting.removeAll(keepingCapacity: head <= 64)
            head = 0
        } else if head * 2 > waiting.count {
            // Amortised: each element is moved at most once.
            waiting.removeFirst(head)
            head = 0
        }
        return first.element
    }

    // MARK: Jobs

    /// The number of waiting elements without a job. They are the last ones.
    var countWithoutJob: Int { max(0, count - jobs) }

    /// Counts one more job, unless `limit` jobs, or one for each waiting element, are already pending.
    ///
    /// - Returns: whether the caller must start the job.
    mutating func ask(limit: Int) -> Bool {
        guard jobs < min(limit, count) else { return false }
        jobs += 1
        return true
    }

    mutating func endJob() { jobs -= 1 }
}
