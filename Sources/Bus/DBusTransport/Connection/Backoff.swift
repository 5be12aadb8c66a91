/// How long to wait before each attempt to reach a lost bus: at once, then 50 ms doubling to 2 s.
///
/// Not longer: a bus that restarts is back within seconds, and an attempt costs one failed `connect`.
struct Backoff {
    private var attempts = 0

    mutating func next() -> Duration {
        defer { attempts += 1 }
        guard attempts > 0 else { return .zero }
        return min(.milliseconds(50 << min(attempts - 1, 6)), .seconds(2))
    }
}
