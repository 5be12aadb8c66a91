/// Decides when a burst of events is over. Pure: the caller brings the time.
struct SettlingPeriod: Sendable {
    /// How long nothing must have happened.
    let quiet: Duration
    /// How long a burst may last before it counts as over all the same: a directory that is never quiet must not keep
    /// a change from being seen.
    let longest: Duration

    private var first: ContinuousClock.Instant?
    private var last: ContinuousClock.Instant?

    init(quiet: Duration) {
        self.quiet = quiet
        longest = quiet * 8
    }

    /// When the burst will be over, if nothing more happens; `nil` outside a burst.
    var deadline: ContinuousClock.Instant? {
        guard let first, let last else { return nil }
        return min(last + quiet, first + longest)
    }

    /// Something happened.
    mutating func eventOccurred(at now: ContinuousClock.Instant) {
        first = first ?? now
        last = now
    }

    /// Whether a burst is over now; said once for each.
    mutating func isOver(at now: ContinuousClock.Instant) -> Bool {
        guard let deadline, now >= deadline else { return false }
        first = nil
        last = nil
        return true
    }
}
