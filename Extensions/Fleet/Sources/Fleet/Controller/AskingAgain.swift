/// The retry schedule for an action that may have had no effect: requesting devices' messages again, or publishing what
/// the server rejected. Messages are lost when they do not fit the server's queue, or are above the rate limit. The
/// server still retains each device's last message, which the device itself repeats only after a change.
struct AskingAgain: Sendable {
    /// The longest wait, in seconds.
    static let longest = 600.0

    /// The first wait, in seconds; each further wait is twice as long.
    private let first: Double
    private var wait: Double
    /// The time of the last action.
    private var at: Double?
    /// During a search for devices to ask: the last one examined and those found.
    private(set) var found: (last: String, names: [String])?

    /// - Parameter first: the default is longer than ``ReportLimiter/window``.
    init(first: Double = 15) { (self.first, wait) = (first, first) }

    /// Restarts the schedule, because the action happened for another reason or reports to a new order are expected.
    mutating func begin(_ now: Double) {
        (at, wait) = (now, first)
        found = nil
    }

    /// Schedules a new item within the first wait, without delaying an earlier item.
    mutating func hasten(_ now: Double) {
        // The bounds cover a clock that was set back.
        let left = at.map { min(max($0 + wait - now, 0), first) } ?? first
        (at, wait) = (now - (first - left), first)
    }

    mutating func isDue(_ now: Double) -> Bool {
        if found != nil { return true }
        guard let at else {
            at = now
            return false
        }
        // `abs` covers a clock that was set back.
        return abs(now - at) >= wait
    }

    /// Continues the search after this device.
    mutating func goOn(after last: String, _ names: [String]) { found = (last, names) }

    mutating func end(_ now: Double, asked: Bool) {
        at = now
        found = nil
        wait = asked ? min(wait * 2, Self.longest) : first
    }
}

/// The devices whose last messages the controller requests again.
package enum MessagesWanted: Sendable, Hashable {
    case all
    case devices([String])

    /// The most names in ``devices(_:)``. For more devices the controller requests ``all``.
    package static let most = 500
}

extension ControllerState {
    /// The devices to ask for reports: the listed and connected devices that, as far as the controller knows, have not
    /// carried out their order. `nil` if there is none to ask now, or while the search goes on (``isLooking``).
    ///
    /// - Parameter most: how many devices to examine: there may be 100,000, and the state must not stay locked.
    package mutating func nextReportsWanted(now: Double, lookingAt most: Int = .max) -> MessagesWanted? {
        nextWanted(\.askingForReports, now, most) { $0.isOnline == true }
    }

    /// As ``nextReportsWanted(now:lookingAt:)``, for pending devices that are not known to be connected: their
    /// presence message may have been lost.
    package mutating func nextPresenceWanted(now: Double, lookingAt most: Int = .max) -> MessagesWanted? {
        nextWanted(\.askingForPresence, now, most) { $0.isOnline != true }
    }

    /// Whether a search is unfinished and must go on without a wait.
    package var isLooking: Bool { isConnected && (askingForReports.found ?? askingForPresence.found) != nil }

    private mutating func nextWanted(
        _ asking: WritableKeyPath<ControllerState, AskingAgain>,
        _ now: Double,
        _ most: Int,
        where isMeant: (FleetDevice) -> Bool
    ) -> MessagesWanted? {
        guard isConnected, self[keyPath: asking].isDue(now) else { return nil }
        let found = self[keyPath: asking].found
        var wanted = found?.names ?? []
        // Continues by name, because devices may have been added or removed.
        let some = names[(found.map { place(after: $0.last) } ?? 0)...].prefix(most)
        for name in some {
            guard let device = devices[name], device.isListed, isMeant(device), owes(device, now) else { continue }
            wanted.append(name)
            if wanted.count > MessagesWanted.most { break }
        }
        if wanted.count <= MessagesWanted.most, let last = some.last, some.endIndex < names.endIndex {
            self[keyPath: asking].goOn(after: last, wanted)
            return nil
        }
        self[keyPath: asking].end(now, asked: !wanted.isEmpty)
        return wanted.isEmpty ? nil : wanted.count > MessagesWanted.most ? .all : .devices(wanted)
    }

    private func owes(_ device: FleetDevice, _ now: Double) -> Bool {
        [(desired, OrderScope.all), (device.desired, .own)].contains { order, scope in
            order.map { !device.standing($0.number, scope, highest: highest, now: now).isDone } ?? false
        }
    }
}

// MARK: - Rejected orders

extension ControllerState {
    /// The first wait before a rejected order is published again, in seconds.
    static let firstRepetition = 5.0

    /// Handles the server's rejection of a published message. Devices cannot have received it, so it is published again
    /// until the server accepts it. Returns whether this is news for the log.
    package mutating func refused(_ topic: FleetTopic, _ reason: String, now: Double) -> Bool {
        switch topic {
        case .allDesired where desired != nil: break
        case .desired(let name) where devices[name]?.desired != nil: break
        default: return true
        }
        let isNews = refusals.isEmpty
        if refusals.updateValue(reason, forKey: topic) == nil {
            revision += 1
            // An old rejection with a long wait must not delay this one.
            if isNews { sendingAgain.begin(now) } else { sendingAgain.hasten(now) }
        }
        return isNews
    }

    package mutating func accepted(_ topic: FleetTopic) {
        guard refusals.removeValue(forKey: topic) != nil else { return }
        revision += 1
        if refusals.isEmpty { sendingAgain = AskingAgain(first: Self.firstRepetition) }
    }

    /// Why the server rejects this order, or any order; `nil` if no rejection is known.
    package func refusal(of recorded: RecordedOrder?) -> String? {
        guard let recorded else { return refusals.values.min() }
        if recorded.names == nil { return refusals[.allDesired] }
        return refusals.filter { topic, _ in
            guard case .desired(let name) = topic, let device = devices[name] else { return false }
            return recorded.isFor(name, device)
        }.values.min()
    }

    package var hasRefusals: Bool { !refusals.isEmpty }

    /// Queues rejected messages again when they are due.
    mutating func sendRefusedAgain(_ now: Double) {
        guard !refusals.isEmpty, sendingAgain.isDue(now) else { return }
        for topic in refusals.keys { mustPublish(topic) }
        sendingAgain.end(now, asked: true)
    }
}
