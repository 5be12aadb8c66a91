public import FoundationEssentials
import Glibc

/// The local time of a place: the offset from UTC in seconds at each instant.
///
/// Foundation's calendars support time zones only together with ICU, whose tables are larger than the broker; without
/// ICU they treat each zone as UTC. glibc reads them from the system's tables.
public struct LocalTime: Sendable {
    private let offset: @Sendable (Date) -> Int

    public init(offset: @escaping @Sendable (Date) -> Int) { self.offset = offset }

    /// The device's local time, as set by TZ and /etc/localtime at the time of the call.
    public static let device = LocalTime { date in
        var seconds = time_t(date.timeIntervalSince1970.rounded(.down))
        var parts = tm()
        // Without this, localtime_r would keep the first zone that it has read.
        tzset()
        return localtime_r(&seconds, &parts) == nil ? 0 : parts.tm_gmtoff
    }

    /// The local clock's reading at `instant`, as a date that a clock in UTC would show.
    public func clock(at instant: Date) -> Date { instant.addingTimeInterval(Double(offset(instant))) }

    /// The first instant at which the local clock shows `clock`, or the first one after a gap that skips that reading.
    public func instant(ofClock clock: Date) -> Date {
        // Assumes that a zone changes its offset at most once within two days.
        let day = 86_400.0
        let (before, after) = (offset(clock.addingTimeInterval(-day)), offset(clock.addingTimeInterval(day)))
        let earliest = clock.addingTimeInterval(-Double(max(before, after)))
        let latest = clock.addingTimeInterval(-Double(min(before, after)))
        for instant in [earliest, latest] where self.clock(at: instant) == clock { return instant }
        // Bisects the gap down to one second.
        var (early, late) = (earliest, latest)
        while late.timeIntervalSince(early) > 1 {
            let middle = early.addingTimeInterval((late.timeIntervalSince(early) / 2).rounded(.down))
            if offset(middle) == before { early = middle } else { late = middle }
        }
        return late
    }
}
