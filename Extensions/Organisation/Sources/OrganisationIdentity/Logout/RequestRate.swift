/// A rate limit with bursts: at most `perSecond` requests a second, and as many at once after a quiet period. Pure.
package struct RequestRate: Sendable {
    private let perSecond: Double
    private var room: Double
    private var last: ContinuousClock.Instant

    package init(perSecond: Int, at now: ContinuousClock.Instant) {
        self.perSecond = Double(perSecond)
        room = Double(perSecond)
        last = now
    }

    /// - Returns: Whether the request may proceed.
    package mutating func take(at now: ContinuousClock.Instant) -> Bool {
        room = min(perSecond, room + (now - last) / .seconds(1) * perSecond)
        last = now
        guard room >= 1 else { return false }
        room -= 1
        return true
    }
}
