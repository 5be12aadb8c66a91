/// The wait before the next attempt. It doubles after each failure, up to a limit. Pure: it only computes the wait.
public struct Backoff: Sendable {
    private let first: Duration
    private let longest: Duration
    private var upcoming: Duration

    public init(first: Duration, longest: Duration) {
        self.first = min(first, longest)
        self.longest = longest
        upcoming = self.first
    }

    /// Whether no attempt has failed since the start or the last ``reset()``.
    public var isFirst: Bool { upcoming == first }

    public mutating func next() -> Duration {
        defer { upcoming = min(upcoming * 2, longest) }
        return upcoming
    }

    /// Returns to the first wait, after a success.
    public mutating func reset() { upcoming = first }
}
