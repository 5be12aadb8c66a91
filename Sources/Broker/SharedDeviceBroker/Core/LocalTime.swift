package import FoundationEssentials
import Glibc

/// The local time of a place: by how many seconds it is ahead of UTC, at each instant.
///
/// Foundation's calendars know time zones only together with ICU, whose tables are larger than the broker; without ICU they take each zone for UTC.
/// glibc knows them from the system's tables.
package struct LocalTime: Sendable {
    private let offset: @Sendable (Date) -> Int

    package init(offset: @escaping @Sendable (Date) -> Int) { self.offset = offset }

    /// This device's, as TZ and /etc/localtime have it at the moment of the question.
    package static let device = LocalTime { date in
        var seconds = time_t(date.timeIntervalSince1970.rounded(.down))
        var parts = tm()
        // localtime_r alone would keep the zone that it has met first.
        tzset()
        return localtime_r(&seconds, &parts) == nil ? 0 : parts.tm_gmtoff
    }

    /// What a clock shows, in seconds: the instant at which a clock in UTC shows the same.
    package func clock(at instant: Date) -> Date { instant.addingTimeInterval(Double(offset(instant))) }

    /// The first instant at which a clock shows this; of what the change to summer time leaves out, the first instant after the gap.
    package func instant(ofClock clock: Date) -> Date {
        // A zone changes its offset at most once within two days.
        let day = 86_400.0
        let (before, after) = (offset(clock.addingTimeInterval(-day)), offset(clock.addingTimeInterval(day)))
        let earliest = clock.addingTimeInterval(-Double(max(before, after)))
        let latest = clock.addingTimeInterval(-Double(min(before, after)))
        for instant in [earliest, latest] where self.clock(at: instant) == clock { return instant }
        // Halves the time around the gap until one second is left.
        var (early, late) = (earliest, latest)
        while late.timeIntervalSince(early) > 1 {
            let middle = early.addingTimeInterval((late.timeIntervalSince(early) / 2).rounded(.down))
            if offset(middle) == before { early = middle } else { late = middle }
        }
        return late
    }
}
