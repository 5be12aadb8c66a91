/// Limits the rate of messages by topic. An agent reports at most once a second (FL-5). Further messages of a device
/// are ignored unread, so that they do not delay other devices' reports (FL-11). Pure: the caller passes the time of a
/// monotonic clock.
package struct ReportLimiter: Sendable {
    package enum Admission: Sendable, Hashable {
        case read
        /// Over the limit, and the first of the device in this window, which is logged.
        case firstPassedOver
        case passedOver
    }

    /// The length of a window, in seconds.
    package static let window = 10.0
    /// The most messages of one topic in a window: the device's reports and its retained message.
    package static let most = 30

    /// The most topics in a window, more than any fleet has.
    static let mostTopics = 2 * ControllerState.mostDevices

    private var begin = -Double.infinity
    /// The messages in this window, by topic.
    private var counts: [String: Int] = [:]

    package init() {}

    /// Decides on a message before its payload is read.
    package mutating func admit(_ topic: String, now: Double) -> Admission {
        if now - begin >= Self.window { (begin, counts) = (now, [:]) }
        let count = counts[topic, default: 0] + 1
        guard count > 1 || counts.count < Self.mostTopics else { return .passedOver }
        counts[topic] = min(count, Self.most + 2)
        return count <= Self.most ? .read : count == Self.most + 1 ? .firstPassedOver : .passedOver
    }
}
