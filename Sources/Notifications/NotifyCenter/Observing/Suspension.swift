/// Whether a center's deliveries wait, and from which notification on (CF-S1…S16). Pure.
///
/// Notifications are numbered as they arrive, and those numbered below ``limit`` may be delivered. So what was handed to a queue
/// before the suspension, and what a flush has not delivered when a handler suspends anew (CF-S14), waits like the rest.
struct Suspension {
    private(set) var isSuspended = false
    /// Notifications from this number on wait.
    private(set) var limit = UInt64.max
    private var next: UInt64 = 0

    /// What happens to a notification that arrives.
    enum Arrival: Equatable {
        case deliver(UInt64)
        /// After all that waits in the center, of whichever observer: because this one is immediate (CF-S6, CF-S16), or because the
        /// suspension is over and the flush has not come yet (CF-S8).
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

    /// What waits is due after this; until ``flush()`` it goes on waiting.
    mutating func resume() { isSuspended = false }

    /// Whether a flush is due.
    var owesFlush: Bool { !isSuspended && limit != .max }

    /// Everything may be delivered again, unless the center was suspended anew meanwhile.
    mutating func flush() {
        if !isSuspended { limit = .max }
    }
}
