import Glibc

/// Wall-clock time of an event.
struct Timestamp: Equatable {
    /// Since 1970.
    let milliseconds: Int

    /// Rounded, as Darwin's tool does.
    static var now: Timestamp {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return Timestamp(milliseconds: time.tv_sec * 1000 + (time.tv_nsec + 500_000) / 1_000_000)
    }

    /// `SECONDS.MILLISECONDS`
    var text: String {
        let fraction = String(milliseconds % 1000)
        return "\(milliseconds / 1000).\(String(repeating: "0", count: 3 - fraction.count))\(fraction)"
    }
}
