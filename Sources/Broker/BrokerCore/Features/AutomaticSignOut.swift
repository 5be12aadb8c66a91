import DeviceConfiguration
import FoundationEssentials
import SharedDevice

/// Signs the person out after a time of inactivity, at the end of a shift, after the longest time of a session, and
/// after the longest time of a lock. Tells apps before.
struct AutomaticSignOut: Sendable {
    private var schedule: (epoch: UInt64, value: SignOutSchedule)?
    /// When to look again; `nil` means never.
    private(set) var next: Duration?
    /// When the device was last used, by the wall clock, in this run of the broker or an earlier one; `nil` if unknown.
    private var lastActivity: Date?
    /// The next end of the session, as apps were told; `nil` if there is none.
    private(set) var end: SessionEnd?

    private let localTime: LocalTime

    /// - Parameter localTime: The local time of the ends of shifts.
    init(lastActivity: Date?, localTime: LocalTime) { (self.lastActivity, self.localTime) = (lastActivity, localTime) }

    mutating func noteActivity(_ facts: Facts) -> [Decision] {
        // Input at a locked screen is not the person's before the person has authenticated.
        guard schedule != nil, facts.lock == nil else { return [] }
        schedule?.value.noteActivity(at: facts.now)
        // Stored at most once a second, which is enough for timeouts of minutes.
        guard abs(facts.now.wall.timeIntervalSince(lastActivity ?? .distantPast)) >= 1 else { return look(facts) }
        lastActivity = facts.now.wall
        return [.perform(.keepActivity(facts.now.wall))] + look(facts)
    }

    mutating func passTime(_ facts: Facts) -> [Decision] {
        next.map { $0 <= facts.now.uptime } == true ? look(facts) : []
    }

    /// - Parameter isAnnounced: Whether apps are told to ask in any case.
    mutating func look(_ facts: Facts, isAnnounced: Bool = false) -> [Decision] {
        next = nil
        let before = end
        end = nil
        guard facts.device.account != nil, let session = facts.ledger.sessions[facts.device.epoch] else {
            schedule = nil
            return []
        }
        // A session of an earlier run continues from the last activity of that run. In a new session, the sign-in
        // itself is the last activity.
        let known = schedule.flatMap { $0.epoch == facts.device.epoch ? $0.value : nil }
        var value =
            known
            ?? SignOutSchedule(
                settings: facts.policy.schedule,
                localTime: localTime,
                startedAt: session.startedAt,
                lastActivity: lastActivity ?? facts.now.wall
            )
        value.settings = facts.policy.schedule
        let decision = value.look(at: facts.now, lockedAt: facts.lock?.began)
        schedule = (facts.device.epoch, value)
        switch decision {
        case .look(let date):
            // The clock may be set during the wait, which is noticed within a minute.
            let wait = date.map { Duration.seconds(max(0.01, $0.timeIntervalSince(facts.now.wall))) }
            next = wait.map { facts.now.uptime + min($0, Facts.longestPause) }
            // Rounding alone is no change.
            end = before?.isLike(value.end) == true ? before : value.end
            let isNews = end != before && (end?.isSoon == true || before?.isSoon == true)
            return isNews && !isAnnounced ? [.perform(.announce(modeChanged: false)), .touch] : []
        case .signOut(let reason): return [.end(cause: reason)]
        case .lock(let reason): return [.lockScreen(because: reason)]
        }
    }
}

extension SessionEnd {
    /// Whether both are the same for people: ends less than a second apart.
    fileprivate func isLike(_ other: SessionEnd?) -> Bool {
        guard let other else { return false }
        return reason == other.reason && isSoon == other.isSoon && abs(at.timeIntervalSince(other.at)) < 1
    }
}
