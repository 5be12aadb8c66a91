import Glibc

/// The machine's monotonic clock (`CLOCK_MONOTONIC`), whose readings can be compared between processes.
package enum MonotonicClock {
    /// Nanoseconds since an instant that is the same for every process until the machine restarts.
    package static var nanoseconds: UInt64 {
        var time = timespec()
        // It fails for an unknown clock or a bad address only.
        clock_gettime(CLOCK_MONOTONIC, &time)
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }
}
