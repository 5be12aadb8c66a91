package import FoundationEssentials

/// Decides when a session ends by itself: after a time without activity, or at the end of a shift. Pure: the caller passes the time, and asks
/// again when told to.
///
/// Shifts end by the wall clock. Over a restart the wall clock says how long the device was unused; otherwise the clock that never jumps does:
/// the longer time counts, so that a clock that is set back lets nobody stay longer.
package struct SignOutSchedule: Sendable {
    /// What the administrator has set.
    package struct Settings: Sendable, Equatable {
        /// How long the device may be unused; `nil` means without limit.
        package var inactivity: Duration?
        /// When shifts end, in minutes of the local day: 0 to 1439.
        package var shiftEnds: Set<Int> = []
    }

    /// What is to be done.
    package enum Decision: Sendable, Equatable {
        /// For this reason, as the log has it: `inactivity for 900 s`, `shift end 14:00`.
        case signOut(String)
        /// Ask again at this instant; `nil` means never.
        case look(at: Date?)
    }

    /// What the administrator has set.
    package var settings: Settings
    /// What shifts end by.
    package var localTime: LocalTime
    /// When the session began.
    package private(set) var startedAt: Date
    /// When somebody used the device last.
    package private(set) var lastActivity: Date
    /// The same by the clock that never jumps; `nil` until somebody looks.
    private var lastUptime: Duration?

    package init(settings: Settings, localTime: LocalTime, startedAt: Date, lastActivity: Date) {
        self.settings = settings
        self.localTime = localTime
        self.startedAt = startedAt
        self.lastActivity = max(startedAt, lastActivity)
    }

    /// Somebody is using the device.
    package mutating func noteActivity(at moment: Moment) { (lastActivity, lastUptime) = (moment.wall, moment.uptime) }

    /// What is to be done at this instant.
    package mutating func look(at moment: Moment) -> Decision {
        let now = moment.wall
        // Nobody used the device in the future: the clock was set back.
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
        // Also where no time is set: one may be, after the clock was set back.
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

    /// The first end of a shift after the session's begin. A time that the change to summer time leaves out is the first one after the gap;
    /// of one that there is twice, the first counts.
    private var shiftEnd: (Date, minute: Int)? {
        // The system takes long to say the local time.
        guard !settings.shiftEnds.isEmpty else { return nil }
        let day = 86_400.0
        let today = (localTime.clock(at: startedAt).timeIntervalSince1970 / day).rounded(.down) * day
        let ends = settings.shiftEnds.sorted().compactMap { minute in
            // Today's may be over.
            [0, day, 2 * day].lazy
                .map { localTime.instant(ofClock: Date(timeIntervalSince1970: today + $0 + Double(minute * 60))) }
                .first { $0 > startedAt }
                .map { ($0, minute: minute) }
        }
        return ends.min { $0.0 < $1.0 }
    }
}
