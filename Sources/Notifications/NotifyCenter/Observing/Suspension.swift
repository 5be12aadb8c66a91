import Synchronization

/// What happens to the notifications for an observer while its center is suspended (CF-S3…S6). While it is not, all four
/// are the same (CF-S10).
public enum SuspensionBehavior: Int, Sendable, Hashable, CaseIterable {
    /// They are lost (CF-S3).
    case drop = 1
    /// Of each name and object the last one waits (CF-S4). The default.
    case coalesce = 2
    /// All wait, as many as the observer's ``Buffering`` has room for (CF-S5).
    case hold = 3
    /// They are delivered nevertheless, and before them all that waits in the center (CF-S6).
    case deliverImmediately = 4
}

/// Whether a center's deliveries wait, and from which notification on (CF-S1…S16). Pure.
///
/// Notifications are numbered as they arrive, and those numbered below ``limit`` may be delivered. So what was handed to a queue
/// before the suspension, and what a flush has not delivered when a handler suspends anew (CF-S14), waits like the rest.
struct Suspension {
    private(set) var isSuspended = false
    /// Notifications from this number on wait.
    private(set) var limit = UInt64.max
    private var next: UInt64 = 0
    /// Whether ``resume()`` asked for a flush that has not come yet. One that is on its way is enough, however often the center is suspended
    /// and resumed meanwhile.
    private var isFlushPending = false

    /// What happens to a notification that arrives.
    enum Arrival: Equatable {
        case deliver(UInt64)
        /// First everything that waits in the center is delivered, for all observers: because this one is immediate (CF-S6, CF-S16), or because
        /// the suspension is over and the flush has not come yet (CF-S8).
        case flushAndDeliver(UInt64)
        /// Its observers' suspension behaviours decide.
        case wait(UInt64)
    }

    /// - Parameter isImmediate: whether the post says so, or an observer that it matches.
    mutating func arrive(isImmediate: Bool) -> Arrival {
        defer { next += 1 }
        guard isSuspended else {
            if limit == .max { return .deliver(next) }
            limit = .max
            return .flushAndDeliver(next)
        }
        guard isImmediate else { return .wait(next) }
        // As if resumed, this one delivered, and suspended again (CF-S6).
        limit = next + 1
        return .flushAndDeliver(next)
    }

    /// Twice is once (CF-S9).
    mutating func suspend() {
        guard !isSuspended else { return }
        isSuspended = true
        limit = 0
    }

    /// What waits is due after this; it goes on waiting until ``flush()``.
    ///
    /// - Returns: whether the caller must see to it that ``flush()`` is called once more, now or later.
    mutating func resume() -> Bool {
        isSuspended = false
        guard limit != .max, !isFlushPending else { return false }
        isFlushPending = true
        return true
    }

    /// Everything may be delivered again, unless the center was suspended anew meanwhile.
    ///
    /// - Returns: whether the caller must hand over all that waits.
    mutating func flush() -> Bool {
        isFlushPending = false
        guard !isSuspended, limit != .max else { return false }
        limit = .max
        return true
    }
}

/// A center's ``Suspension/limit``, where each of its registrations reads it right before a delivery.
final class DeliveryGate: Sendable {
    private let atomicLimit = Atomic<UInt64>(.max)

    /// Notifications numbered below it may be delivered.
    var limit: UInt64 {
        get { atomicLimit.load(ordering: .acquiring) }
        set { atomicLimit.store(newValue, ordering: .releasing) }
    }
}
