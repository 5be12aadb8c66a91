/// How long to wait before the next attempt: exponential backoff with full jitter, so that a fleet does not come back all at once.
package struct ReconnectDelay: Sendable, Hashable {
    /// The longest wait, and the longest after an outage of over ten minutes.
    private static let (longest, longestOfAll) = (Duration.seconds(120), Duration.seconds(300))
    private static let longOutage = Duration.seconds(600)

    private let first: Duration
    private var limit: Duration
    private var outage = Duration.zero

    package init(first: Duration = .seconds(1)) {
        self.first = first
        limit = first
    }

    /// The next wait: between nothing and a limit that doubles.
    ///
    /// - Parameter fraction: from 0 to 1, by chance.
    package mutating func next(fraction: Double) -> Duration {
        let delay = limit * min(max(fraction, 0), 1)
        outage += delay
        limit = min(limit * 2, outage > Self.longOutage ? Self.longestOfAll : Self.longest)
        return delay
    }

    /// The server has accepted the client.
    package mutating func reset() { self = ReconnectDelay(first: first) }
}
