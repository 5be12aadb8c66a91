package import DeviceConfiguration
package import FoundationEssentials
package import SharedDevice

/// Decides when a session ends automatically. Before the end there is a warning.
///
/// Shifts end by the wall clock. Other times are measured by the wall clock across a restart, and otherwise by the
/// monotonic clock; the longer result counts, so that setting the wall clock back does not extend a session.
package struct SignOutSchedule: Sendable {
    package struct Settings: Sendable, Equatable {
        /// How long the device may be unused; `nil` means no limit.
        package var inactivity: Duration?
        /// How long a session may stay locked; `nil` means that inactivity signs out and does not lock.
        package var locked: Duration?
        /// When shifts end, in minutes of the local day: 0 to 1439.
        package var shiftEnds: Set<Int> = []
        /// How long a session may last; `nil` means no limit.
        package var longest: Duration?
        /// How long before the end the warning begins, at most half of a limit; zero means no warning.
        package var warning = ManagedConfiguration.usualWarning.duration
    }

    package enum Decision: Sendable, Equatable {
        /// Sign out. The reason is written to the log, such as `inactivity for 900 s` or `shift end 14:00`.
        case signOut(String)
        /// Lock the session, or sign out if that is not possible. The reason is the one of a sign-out.
        case lock(String)
        /// Check again at this time; `nil` means never.
        case look(at: Date?)
    }

    package var settings: Settings
    package var localTime: LocalTime
    package private(set) var startedAt: Date
    /// Like ``startedAt``, but never moved when the clock is set: an hour back and forth is no hour of the session.
    private let began: Date
    /// When the device was last used, by the wall clock.
    package private(set) var lastActivity: Date
    /// The same by the monotonic clock; `nil` until the first use or look.
    private var lastUptime: Duration?
    /// When the session began, by the monotonic clock; `nil` until the first ``look(at:)``.
    private var startedUptime: Duration?
    /// The next end, as of the last look; `nil` if there is none.
    package private(set) var end: SessionEnd?

    package init(settings: Settings, localTime: LocalTime, startedAt: Date, lastActivity: Date) {
        (self.settings, self.localTime) = (settings, localTime)
        (self.startedAt, began) = (startedAt, startedAt)
        self.lastActivity = max(startedAt, lastActivity)
    }

    package mutating func noteActivity(at moment: Moment) { (lastActivity, lastUptime) = (moment.wall, moment.uptime) }

    /// - Parameter lockedAt: When the session was locked, by the monotonic clock; `nil` if it is not. A locked session
    ///   does not end by inactivity.
    package mutating func look(at moment: Moment, lockedAt: Duration? = nil) -> Decision {
        let now = moment.wall
        // Times in the future mean that the clock was set back.
        startedAt = min(startedAt, now)
        lastActivity = min(lastActivity, now)
        // Computed even without a limit: one may be set later, after the clock was set back.
        let age = Self.age(of: began, &startedUptime, at: moment)
        let unused = Self.age(of: lastActivity, &lastUptime, at: moment)
        let warning = settings.warning / .seconds(1)
        var ends: [(at: Date, reason: SessionEnd.Reason, cause: String, warning: Double)] = []
        if let (end, minute) = shiftEnd {
            let (hour, rest) = minute.quotientAndRemainder(dividingBy: 60)
            let time = "\(hour < 10 ? "0" : "")\(hour):\(rest < 10 ? "0" : "")\(rest)"
            ends.append((end, .shiftEnd, "shift end \(time)", warning))
        }
        let limits: [(Duration?, Double, SessionEnd.Reason, String)] = [
            (settings.longest, age, .longestSession, "longest session of"),
            lockedAt.map { (settings.locked, (moment.uptime - $0) / .seconds(1), .lock, "locked for") }
                ?? (settings.inactivity, unused, .inactivity, "inactivity for"),
        ]
        for (limit, time, reason, cause) in limits {
            guard let seconds = limit.map({ $0 / .seconds(1) }) else { continue }
            let text = seconds == seconds.rounded() ? "\(Int64(seconds))" : "\(seconds)"
            let end = now.addingTimeInterval(seconds - time)
            // The person of a locked session is not there to be warned.
            let warned = reason == .lock ? 0 : min(warning, seconds / 2)
            ends.append((end, reason, "\(cause) \(text) s", warned))
        }
        end = nil
        if let past = ends.first(where: { $0.at <= now }) {
            // A device that has slept through the time of the lock as well would not be locked any more.
            let rest = settings.locked.map { past.at.addingTimeInterval($0 / .seconds(1)) > now } ?? false
            return past.reason == .inactivity && rest ? .lock(past.cause) : .signOut(past.cause)
        }
        guard let first = ends.min(by: { $0.at < $1.at }) else { return .look(at: nil) }
        let warned = ends.filter { $0.warning > 0 }
        // An end whose own warning has not begun may come first. Each activity moves it, and with it the warning.
        let soon = warned.filter { $0.at.addingTimeInterval(-$0.warning) <= now }.min { $0.at < $1.at }
        let shown = lockedAt == nil ? soon ?? first : first
        end = SessionEnd(at: shown.at, reason: shown.reason, isSoon: soon != nil)
        let warnings = warned.map { $0.at.addingTimeInterval(-$0.warning) }
        return .look(at: warnings.filter { $0 > now }.min().map { min($0, first.at) } ?? first.at)
    }

    /// The time since `date` in seconds, by the clock that shows the longer time.
    ///
    /// - Parameter uptime: The same point by the monotonic clock; set here if unknown.
    private static func age(of date: Date, _ uptime: inout Duration?, at moment: Moment) -> Double {
        let age = max(0, moment.wall.timeIntervalSince(date))
        let since = uptime ?? moment.uptime - .seconds(age)
        uptime = since
        return max(age, (moment.uptime - since) / .seconds(1))
    }

    /// The first end of a shift after the session began. A local time that the change to summer time skips counts as
    /// the first one after the gap; of a time that occurs twice the first counts.
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
