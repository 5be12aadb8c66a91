/// Keeps what strangers send from filling the log: a number of refusals a minute get a line of their own, and the rest are counted in one. A value that
/// decides; somebody else writes.
package struct RefusalTally: Sendable {
    /// How many get a line of their own.
    package static let lines = 5
    /// Of a minute.
    package static let window = Duration.seconds(60)

    private var beganAt: ContinuousClock.Instant?
    private var written = 0
    private var counted = 0

    package init() {}

    /// One is refused.
    ///
    /// - Returns: whether it gets a line, and how many of a minute that is over were only counted: they are to be written first.
    package mutating func take(at now: ContinuousClock.Instant) -> (isWritten: Bool, counted: Int) {
        let before = rest(at: now)
        if isOver(at: now) { (beganAt, written) = (now, 0) }
        guard written < Self.lines else {
            counted += 1
            return (false, before)
        }
        written += 1
        return (true, before)
    }

    /// How many were only counted in a minute that is over; they are told once.
    package mutating func rest(at now: ContinuousClock.Instant) -> Int {
        guard isOver(at: now) else { return 0 }
        defer { counted = 0 }
        return counted
    }

    private func isOver(at now: ContinuousClock.Instant) -> Bool {
        beganAt.map { now >= $0 + Self.window } ?? true
    }
}
