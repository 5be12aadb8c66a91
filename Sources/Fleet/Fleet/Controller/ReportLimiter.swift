/// Which messages of devices the controller reads. An agent reports once a second at most (FL-5); of a device that says more than that the rest is
/// passed over unread, so that it does not hold up what others report (FL-11). Pure: the caller passes the time of a clock that never jumps.
package struct ReportLimiter: Sendable {
    /// What becomes of a message.
    package enum Admission: Sendable, Hashable {
        case read
        /// Too much; the first of the device in this window, which is told.
        case firstPassedOver
        case passedOver
    }

    /// How long messages are counted together, in seconds.
    package static let window = 10.0
    /// How many messages of one device are read in a window: its reports, and those that the server has kept of it.
    package static let most = 30

    /// Of how many topics messages are read in a window; no fleet has more.
    static let mostTopics = 2 * ControllerState.mostDevices

    private var begin = -Double.infinity
    /// By topic, of the devices that have said something in this window.
    private var counts: [String: Int] = [:]

    package init() {}

    /// Decides on a message before anything of it is read.
    package mutating func admit(_ topic: String, now: Double) -> Admission {
        if now - begin >= Self.window { (begin, counts) = (now, [:]) }
        let count = counts[topic, default: 0] + 1
        guard count > 1 || counts.count < Self.mostTopics else { return .passedOver }
        counts[topic] = min(count, Self.most + 2)
        return count <= Self.most ? .read : count == Self.most + 1 ? .firstPassedOver : .passedOver
    }
}
