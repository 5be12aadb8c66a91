/// How long to wait before the next try: twice as long with each failure, up to a limit.
struct Backoff {
    private let first: Duration
    private let longest: Duration
    private var upcoming: Duration

    init(first: Duration, longest: Duration) {
        self.first = min(first, longest)
        self.longest = longest
        upcoming = self.first
    }

    /// The wait after one more failure.
    mutating func next() -> Duration {
        defer { upcoming = min(upcoming * 2, longest) }
        return upcoming
    }

    /// After a success, the first wait is due again.
    mutating func reset() { upcoming = first }
}
