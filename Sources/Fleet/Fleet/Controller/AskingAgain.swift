/// When the controller asks the server again for what devices have reported. The server drops what finds no room on the way to the controller, and the
/// controller passes over what is too much; the server still has the last report, and the device says it again only when something changes.
struct AskingAgain: Sendable {
    /// The first wait and the longest one, in seconds; each is twice the one before. The first is longer than ``ReportLimiter/window``.
    static let (first, longest) = (15.0, 600.0)

    /// When the server was last asked.
    private var at: Double?
    private var wait = first

    /// The server was asked for all reports, or an order was given, to which reports are to come.
    mutating func begin(_ now: Double) { (at, wait) = (now, Self.first) }

    mutating func isDue(_ now: Double) -> Bool {
        guard let at else {
            at = now
            return false
        }
        // Also where the clock was set back.
        return abs(now - at) >= wait
    }

    mutating func end(_ now: Double, asked: Bool) {
        at = now
        wait = asked ? min(wait * 2, Self.longest) : Self.first
    }
}

/// Whose last reports the controller wants once more.
package enum ReportsWanted: Sendable, Hashable {
    case all
    case devices([String])

    /// From how many devices on it asks for all.
    package static let most = 500
}

extension ControllerState {
    /// Whose reports to ask for: of devices that are connected and listed, and have not done what is ordered, by all that is known.
    ///
    /// - Returns: `nil` where nobody is to be asked for now.
    package mutating func nextReportsWanted(now: Double) -> ReportsWanted? {
        guard isConnected, askingAgain.isDue(now) else { return nil }
        var wanted: [String] = []
        for name in names {
            guard let device = devices[name], device.isListed, device.isOnline == true, owes(device, now) else {
                continue
            }
            wanted.append(name)
            if wanted.count > ReportsWanted.most { break }
        }
        askingAgain.end(now, asked: !wanted.isEmpty)
        return wanted.isEmpty ? nil : wanted.count > ReportsWanted.most ? .all : .devices(wanted)
    }

    private func owes(_ device: FleetDevice, _ now: Double) -> Bool {
        [(desired, OrderScope.all), (device.desired, .own)].contains { order, scope in
            order.map { !device.standing($0.number, scope, highest: highest, now: now).isDone } ?? false
        }
    }
}
