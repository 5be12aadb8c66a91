public import Dispatch

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

    /// Drops elements as the policy says, so that another one fits. Returns whether there is room; if not, the new
    /// element is dropped.
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

    private func isOver(_ limit: Int, with new: Int) -> Bool { count >= limit || bytes + new > Buffering.maximumBytes }

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

    /// Ends the coalescing: later elements do not replace the waiting ones. Returns the numbers of all waiting
    /// elements, in order.
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

    /// Counts one more job, unless `limit` jobs, or one for each waiting element, are already pending. Returns whether
    /// the caller must start the job.
    mutating func ask(limit: Int) -> Bool {
        guard jobs < min(limit, count) else { return false }
        jobs += 1
        return true
    }

    mutating func endJob() { jobs -= 1 }
}

// The choices of a program for an observer (where the handler runs, how much waits for it), and the counts of its
// notifications.

/// The place where an observer's handler runs.
///
/// Each handler is called for one notification at a time, in the order of arrival. The center hands notifications over
/// in the order of registration. Observers that share a serial queue are therefore called in that order, post by post
/// (CF-D3).
public struct Delivery: Sendable {
    enum Kind: Sendable {
        case background
        case immediate
        case executor(any TaskExecutor)
        /// The function gets one job for each delivery. It must run the jobs one after the other and in order.
        case scheduled(@Sendable (@escaping @Sendable () -> Void) -> Void)
        /// The owner of the registration takes the notifications, and this function wakes it.
        case wakes(@Sendable () -> Void)
    }

    let kind: Kind

    /// On a thread of the system's choice. A slow handler delays only itself, while fewer than 255 handlers are busy in
    /// the process. The default.
    public static let background = Delivery(kind: .background)

    /// On the thread that reads the bus, without a queue in between: the fastest delivery, for handlers that return at
    /// once. A slow handler delays all others of the process. Such a handler may post and register. A function that
    /// waits for the bus throws ``DBusError/Code/wouldDeadlock`` there (CF-D9).
    public static let immediate = Delivery(kind: .immediate)

    /// On the main queue, which runs in `dispatchMain()`, in a running main run loop, and in a program with an `async`
    /// main.
    public static let main = queue(.main)

    /// On a serial queue. On a concurrent queue, calls may overlap and overtake each other.
    public static func queue(_ queue: DispatchQueue) -> Delivery { scheduled { queue.async(execute: $0) } }

    /// By this function, which gets one job for each delivery. It must run the jobs one after the other and in order.
    package static func scheduled(_ schedule: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void) -> Delivery
    {
        Delivery(kind: .scheduled(schedule))
    }

    /// In a task on this executor.
    public static func executor(_ executor: any TaskExecutor) -> Delivery { Delivery(kind: .executor(executor)) }
}

// MARK: - Buffering

/// How many notifications wait for an observer that is slower than the posts, and which are dropped. The process keeps
/// reading from the bus (architecture, D4), and ``DeliveryCounts/dropped`` counts the dropped notifications.
///
/// Their bytes are limited too: at most 16 MiB wait for one observer, unless its buffering is ``unbounded``.
/// <doc:WireProtocol> says how the size of a notification is counted.
public struct Buffering: Sendable, Hashable {
    enum Policy: Hashable {
        case coalescing
        case oldest(Int)
        case newest(Int)
        case unbounded
    }

    /// The byte limit for one observer, as ``NotificationSize`` counts.
    static let maximumBytes = 16 << 20

    let policy: Policy

    /// Keeps the newest `limit` notifications. Older ones are dropped, and so are those beyond 16 MiB. A limit below 1
    /// counts as 1.
    public static func bufferingNewest(_ limit: Int) -> Buffering { Buffering(policy: .newest(max(1, limit))) }

    /// Keeps the oldest `limit` notifications. Newer ones are dropped, and so are those beyond 16 MiB. A limit below 1
    /// counts as 1.
    public static func bufferingOldest(_ limit: Int) -> Buffering { Buffering(policy: .oldest(max(1, limit))) }

    /// Keeps everything, of any size. Use it only for observers that are always fast enough: otherwise any process on
    /// the bus can fill the memory of this one.
    public static let unbounded = Buffering(policy: .unbounded)

    /// One pending notification stands for all that arrive while the observer is busy, as in the Darwin center. After
    /// the last post there is at least one delivery.
    static let coalescing = Buffering(policy: .coalescing)

    /// Keeps the newest 4096. The default of a distributed observer.
    public static let standard = bufferingNewest(4096)
}

// MARK: - Outcome

/// The outcome of the notifications for one observer, or for all observers of a center.
public struct DeliveryCounts: Sendable, Hashable {
    /// Handed to the observer.
    public internal(set) var delivered: UInt64 = 0
    /// Merged into a later notification, which was delivered or waits. The Darwin center merges for a busy observer.
    /// The distributed center merges for an observer with ``SuspensionBehavior/coalesce`` while it is suspended.
    public internal(set) var coalesced: UInt64 = 0
    /// Lost because the observer's ``Buffering`` had no room, by count or by bytes.
    public internal(set) var dropped: UInt64 = 0
    /// Lost because the center was suspended and the observer has ``SuspensionBehavior/drop``.
    public internal(set) var suppressed: UInt64 = 0

    mutating func add(_ other: DeliveryCounts) {
        delivered += other.delivered
        coalesced += other.coalesced
        dropped += other.dropped
        suppressed += other.suppressed
    }
}
