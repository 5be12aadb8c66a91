import Foundation
import SharedDeviceBroker

/// The oracle's knowledge of how long sessions last.
struct SessionEndTruth {
    /// When each session was written.
    var began: [UInt64: Duration] = [:]
    /// The session whose age the broker may misjudge, because the broker was started after the clock was set.
    var doubtful: UInt64?
    /// Whether this run of the broker has a valid configuration.
    var isConfigured = false
}

extension Oracle {
    mutating func startedEnds(_ state: BrokerState) {
        ends.isConfigured = false
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
}
