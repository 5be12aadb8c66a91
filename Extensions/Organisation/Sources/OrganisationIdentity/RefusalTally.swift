/// Keeps a flood of rejected requests from filling the log. A few rejections a minute get a log line each; the rest are
/// counted and reported as one number. Pure: the caller writes the lines.
package struct RefusalTally: Sendable {
    /// The number of rejections per ``window`` that get their own line.
    package static let lines = 5
    package static let window = Duration.seconds(60)

    private var beganAt: ContinuousClock.Instant?
    private var written = 0
    private var counted = 0

    package init() {}

    /// Counts a rejection. Returns whether to log it, and how many unlogged rejections of an earlier window to report
    /// first.
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

    /// The number of unlogged rejections if the window is over. Each is returned once.
    package mutating func rest(at now: ContinuousClock.Instant) -> Int {
        guard isOver(at: now) else { return 0 }
        defer { counted = 0 }
        return counted
    }

    private func isOver(at now: ContinuousClock.Instant) -> Bool {
        beganAt.map { now >= $0 + Self.window } ?? true
    }
}
