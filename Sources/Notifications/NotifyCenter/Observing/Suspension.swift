import Synchronization

/// How notifications for an observer are treated while its center is suspended (CF-S3…S6). While it is not suspended,
/// all four behave the same (CF-S10).
public enum SuspensionBehavior: Int, Sendable, Hashable, CaseIterable {
    /// Notifications are lost (CF-S3).
    case drop = 1
    /// The last notification of each name and object waits (CF-S4). The default.
    case coalesce = 2
    /// All notifications wait, within the limits of the observer's ``Buffering`` (CF-S5).
    case hold = 3
    /// Notifications are delivered anyway, after everything that waits in the center (CF-S6).
    case deliverImmediately = 4
}

/// Decides whether a center's deliveries wait, and from which notification on (CF-S1…S16). Pure.
///
/// Notifications are numbered as they arrive; those numbered below ``limit`` may be delivered. Notifications that were
/// queued before the suspension therefore wait like the rest. So do notifications that a flush has not delivered when a
/// handler suspends again (CF-S14).
struct Suspension {
    private(set) var isSuspended = false
    /// Notifications from this number on wait.
    private(set) var limit = UInt64.max
    private var next: UInt64 = 0
    /// Whether ``resume()`` asked for a flush that has not happened yet. One pending flush is enough, however often the
    /// center is suspended and resumed before it.
    private var isFlushPending = false

    enum Arrival: Equatable {
        case deliver(UInt64)
        /// First everything that waits in the center is delivered, for all observers. The reason is that this
        /// notification is immediate (CF-S6, CF-S16), or that the suspension is over and the flush has not happened yet
        /// (CF-S8).
        case flushAndDeliver(UInt64)
        /// The suspension behaviour of each observer decides.
        case wait(UInt64)
    }

    /// - Parameter isImmediate: whether the post or a matching observer asks for immediate delivery.
    mutating func arrive(isImmediate: Bool) -> Arrival {
        defer { next += 1 }
        guard isSuspended else {
            if limit == .max { return .deliver(next) }
            limit = .max
            return .flushAndDeliver(next)
        }
        guard isImmediate else { return .wait(next) }
        // As if the center were resumed, delivered this notification, and were suspended again (CF-S6).
        limit = next + 1
        return .flushAndDeliver(next)
    }

    /// Suspends. Idempotent (CF-S9).
    mutating func suspend() {
        guard !isSuspended else { return }
        isSuspended = true
        limit = 0
    }

    /// Ends the suspension. Waiting notifications become due, and wait until ``flush()``.
    ///
    /// - Returns: whether the caller must arrange one more call of ``flush()``, now or later.
    mutating func resume() -> Bool {
        isSuspended = false
        guard limit != .max, !isFlushPending else { return false }
        isFlushPending = true
        return true
    }

    /// Allows all deliveries again, unless the center has been suspended again.
    ///
    /// - Returns: whether the caller must hand over everything that waits.
    mutating func flush() -> Bool {
        isFlushPending = false
        guard !isSuspended, limit != .max else { return false }
        limit = .max
        return true
    }
}

/// A center's ``Suspension/limit``. Each registration reads it right before a delivery.
final class DeliveryGate: Sendable {
    private let atomicLimit = Atomic<UInt64>(.max)

    /// Notifications with a lower number may be delivered.
    var limit: UInt64 {
        get { atomicLimit.load(ordering: .acquiring) }
        set { atomicLimit.store(newValue, ordering: .releasing) }
    }
}
