package import DeviceConfiguration
package import FoundationEssentials

/// Decides when a session ends automatically: after a time of inactivity, or at the end of a shift.
///
/// Pure: the caller passes the time, and calls ``look(at:)`` again at the returned time.
///
/// Shifts end by the wall clock. Inactivity is measured by the wall clock across a restart, and otherwise by the
/// monotonic clock. The longer result counts, so that setting the wall clock back does not extend a session.
package struct SignOutSchedule: Sendable {
    package struct Settings: Sendable, Equatable {
        /// How long the device may be unused; `nil` means no limit.
        package var inactivity: Duration?
        /// When shifts end, in minutes of the local day: 0 to 1439.
        package var shiftEnds: Set<Int> = []
    }

    package enum Decision: Sendable, Equatable {
        /// Sign out. The reason is written to the log, such as `inactivity for 900 s` or `shift end 14:00`.
        case signOut(String)
        /// Check again at this time; `nil` means never.
        case look(at: Date?)
    }

    package var settings: Settings
    package var localTime: LocalTime
    package private(set) var startedAt: Date
    /// When the device was last used, by the wall clock.
    package private(set) var lastActivity: Date
    /// When the device was last used, by the monotonic clock; `nil` until the first ``look(at:)`` or
    /// ``noteActivity(at:)``.
    private var lastUptime: Duration?

    package init(settings: Settings, localTime: LocalTime, startedAt: Date, lastActivity: Date) {
        self.settings = settings
        self.localTime = localTime
        self.startedAt = startedAt
        self.lastActivity = max(startedAt, lastActivity)
    }

    package mutating func noteActivity(at moment: Moment) { (lastActivity, lastUptime) = (moment.wall, moment.uptime) }

    /// Decides what to do at this time.
    package mutating func look(at moment: Moment) -> Decision {
        let now = moment.wall
        // Times in the future mean that the clock was set back.
        startedAt = min(startedAt, now)
        lastActivity = min(lastActivity, now)
        var next: Date?
        if let (end, minute) = shiftEnd {
            guard end > now else {
                let (hour, rest) = minute.quotientAndRemainder(dividingBy: 60)
                return .signOut("shift end \(hour < 10 ? "0" : "")\(hour):\(rest < 10 ? "0" : "")\(rest)")
            }
            next = end
        }
        // Computed even without an inactivity limit: one may be set later, after the clock was set back.
        let unused = now.timeIntervalSince(lastActivity)
        let since = lastUptime ?? moment.uptime - .seconds(unused)
        lastUptime = since
        if let inactivity = settings.inactivity {
            let seconds = inactivity / .seconds(1)
            let end = now.addingTimeInterval(seconds - max(unused, (moment.uptime - since) / .seconds(1)))
            guard end > now else {
                return .signOut("inactivity for \(seconds == seconds.rounded() ? "\(Int64(seconds))" : "\(seconds)") s")
            }
            next = min(next ?? end, end)
        }
        return .look(at: next)
    }

    /// The first end of a shift after the session began. A local time that the change to summer time skips counts as
    /// the first time after the gap. If a local time occurs twice, the first occurrence counts.
    private var shiftEnd: (Date, minute: Int)? {
        // Finding the local time is slow.
        guard !settings.shiftEnds.isEmpty else { return nil }
        let day = 86_400.0
        let today = (localTime.clock(at: startedAt).timeIntervalSince1970 / day).rounded(.down) * day
        let ends = settings.shiftEnds.sorted().compactMap { minute in
            // The end of today's shift may have passed.
            [0, day, 2 * day].lazy
                .map { localTime.instant(ofClock: Date(timeIntervalSince1970: today + $0 + Double(minute * 60))) }
                .first { $0 > startedAt }
                .map { ($0, minute: minute) }
        }
        return ends.min { $0.0 < $1.0 }
    }
}
