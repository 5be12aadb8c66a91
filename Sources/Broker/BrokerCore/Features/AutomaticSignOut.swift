import DeviceConfiguration
import FoundationEssentials

/// Signs the person out after a time of inactivity, at the end of a shift, and after the longest time of a session.
struct AutomaticSignOut: Sendable {
    private var schedule: (epoch: UInt64, value: SignOutSchedule)?
    /// When to look again; `nil` means never.
    private(set) var next: Duration?
    /// When the device was last used, by the wall clock, in this run of the broker or an earlier one; `nil` if unknown.
    private var lastActivity: Date?

    private let localTime: LocalTime

    /// - Parameter localTime: The local time of the ends of shifts.
    init(lastActivity: Date?, localTime: LocalTime) {
        (self.lastActivity, self.localTime) = (lastActivity, localTime)
    }

    mutating func noteActivity(_ facts: Facts) -> [Decision] {
        guard schedule != nil else { return [] }
        schedule?.value.noteActivity(at: facts.now)
        // Stored at most once a second, which is enough for timeouts of minutes.
        guard abs(facts.now.wall.timeIntervalSince(lastActivity ?? .distantPast)) >= 1 else { return look(facts) }
        lastActivity = facts.now.wall
        return [.perform(.keepActivity(facts.now.wall))] + look(facts)
    }

    mutating func passTime(_ facts: Facts) -> [Decision] {
        next.map { $0 <= facts.now.uptime } == true ? look(facts) : []
    }

    /// Looks at the time, also after the session or the configuration has changed.
    mutating func look(_ facts: Facts) -> [Decision] {
        next = nil
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
        let decision = value.look(at: facts.now)
        schedule = (facts.device.epoch, value)
        switch decision {
        case .look(let date):
            // The clock may be set during the wait, which is noticed within a minute.
            let wait = date.map { Duration.seconds(max(0.01, $0.timeIntervalSince(facts.now.wall))) }
            next = wait.map { facts.now.uptime + min($0, Facts.longestPause) }
            return []
        case .signOut(let reason): return [.end(cause: reason)]
        }
    }
}
