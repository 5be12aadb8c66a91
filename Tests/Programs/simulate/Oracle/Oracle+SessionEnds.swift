import BrokerCore
import Foundation
import SharedDevice

/// The oracle's knowledge of how long sessions last, and of the warning before they end.
struct SessionEndTruth {
    /// When each session was written.
    var began: [UInt64: Duration] = [:]
    /// The session whose age the broker may misjudge, because the broker was started after the clock was set.
    var doubtful: UInt64?
    /// Whether this run of the broker has a valid configuration.
    var isConfigured = false
    /// The session that apps were told is about to end, and since when.
    var warned: (session: UInt64, at: Duration)?
    /// When something has happened after which a warning may be late: the broker was started or configured, the machine
    /// has slept, or the clock was set.
    var disturbedAt = Duration.zero
}

extension Oracle {
    mutating func startedEnds(_ state: BrokerState) {
        ends.isConfigured = false
        ends.warned = nil
        let session = state.device.epoch
        if let began = ends.began[session], let clockSetAt, clockSetAt >= began { ends.doubtful = session }
    }

    /// Checks that a session ends after its longest time: not before, and not later even if it is used and the clock is
    /// set.
    mutating func judgeLength(_ effects: [Effect], _ state: BrokerState, _ world: World) {
        let now = world.now.uptime
        for case .journal(let entry) in effects {
            guard let session = entry.session else { continue }
            if entry.event == .signedIn { ends.began[session] = now }
            guard entry.event == .signedOut, entry.detail?.hasPrefix("longest session") == true,
                let began = ends.began[session], clockSetAt.map({ $0 < began }) ?? true,
                let most = policy.schedule.longest, now + Self.moment < began + most
            else { continue }
            fail("a session ended before its longest time", "\(session), after \(now - began)")
        }
        let session = state.device.epoch
        guard state.device.account != nil, ends.isConfigured, ends.doubtful != session,
            let most = policy.schedule.longest, let began = ends.began[session], now > began + most + Self.moment
        else { return }
        fail("a session outlasts its longest time", "\(session), after \(now - began)")
    }

    /// Checks that apps are told before a session ends by itself: as long before as configured, and not once the person
    /// uses the device again.
    mutating func judgeWarning(_ effects: [Effect], _ state: BrokerState, _ world: World) {
        let now = world.now.uptime
        for case .journal(let entry) in effects where entry.event == .signedOut {
            guard let limit = limit(of: entry), let session = entry.session else { continue }
            let warning = min(policy.schedule.warning, limit / 2)
            // The broker notices within a minute that the clock was set.
            let last = [ends.disturbedAt, clockSetAt].compactMap(\.self).max() ?? .zero
            guard warning > .zero, now > last + .seconds(60) + warning + Self.moment else { continue }
            guard let warned = ends.warned, warned.session == session, warned.at <= now - warning + Self.moment else {
                fail("a session ended without a warning", "\(session), \(entry.detail ?? "")")
                continue
            }
        }
        guard state.device.account != nil, let end = state.sessionEnd, end.isSoon else {
            ends.warned = nil
            return
        }
        if end.reason == .inactivity, let use, use.isKnown, let limit = policy.schedule.inactivity,
            clockSetAt.map({ $0 < use.at }) ?? true, now + Self.moment < use.at + limit / 2
        {
            fail("a person who uses the device is warned", "\(use.session), \(now - use.at) after the last use")
        }
        let isTold = effects.contains { if case .announce = $0 { true } else { false } }
        guard isTold, ends.warned?.session != state.device.epoch else { return }
        ends.warned = (state.device.epoch, now)
        guard end.at.timeIntervalSince(world.now.wall) > policy.schedule.warning / .seconds(1) + 1 else { return }
        fail("a warning came early", "\(state.device.epoch), at \(now)")
    }

    /// The limit that has ended the session; `nil` if no such limit has.
    private func limit(of entry: AuditEntry) -> Duration? {
        // The warning was over when the screen was asked to lock.
        if entry.detail?.hasSuffix("the screen was not locked") == true { return nil }
        if entry.detail?.hasPrefix("inactivity") == true { return policy.schedule.inactivity }
        return entry.detail?.hasPrefix("longest session") == true ? policy.schedule.longest : nil
    }
}
