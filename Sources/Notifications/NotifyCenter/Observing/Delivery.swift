public import Dispatch

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
    }

    let kind: Kind

    /// On a thread of the system's choice. A slow handler delays only itself, while fewer than 255 are busy in the
    /// process. The default.
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

// MARK: - How much waits

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
}

extension DeliveryCounts {
    mutating func add(_ other: DeliveryCounts) {
        delivered += other.delivered
        coalesced += other.coalesced
        dropped += other.dropped
        suppressed += other.suppressed
    }
}
