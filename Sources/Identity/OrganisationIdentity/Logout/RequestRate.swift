/// How many requests are taken: so many a second, and as many at once after a quiet time. Pure.
package struct RequestRate: Sendable {
    private let perSecond: Double
    private var room: Double
    private var last: ContinuousClock.Instant

    package init(perSecond: Int, at now: ContinuousClock.Instant) {
        self.perSecond = Double(perSecond)
        room = Double(perSecond)
        last = now
    }

    /// - Returns: whether there is room for one more.
    package mutating func take(at now: ContinuousClock.Instant) -> Bool {
        room = min(perSecond, room + (now - last) / .seconds(1) * perSecond)
        last = now
        guard room >= 1 else { return false }
        room -= 1
        return true
    }
}
