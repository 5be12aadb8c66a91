/// When the controller does something again that may have had no effect: asks the server for what devices have said, or sends what the server did not
/// take. The server drops what finds no room on the way to the controller, and the controller passes over what is too much; the server still has the
/// last message, and the device says it again only when something changes.
struct AskingAgain: Sendable {
    /// The longest wait, in seconds.
    static let longest = 600.0

    /// The first wait, in seconds; each is twice the one before.
    private let first: Double
    private var wait: Double
    /// When it was last done.
    private var at: Double?
    /// While it is looked for whom to ask: the device that was looked at last, and those that were found.
    private(set) var found: (last: String, names: [String])?

    /// - Parameter first: by itself longer than ``ReportLimiter/window``.
    init(first: Double = 15) { (self.first, wait) = (first, first) }

    /// It was done for another reason, or an order was given, to which reports are to come.
    mutating func begin(_ now: Double) {
        (at, wait) = (now, first)
        found = nil
    }

    /// Something new waits beside what waited: it comes after the first wait at the latest, and what was due before comes no later.
    mutating func hasten(_ now: Double) {
        // Also where the clock was set back.
        let left = at.map { min(max($0 + wait - now, 0), first) } ?? first
        (at, wait) = (now - (first - left), first)
    }

    mutating func isDue(_ now: Double) -> Bool {
        if found != nil { return true }
        guard let at else {
            at = now
            return false
        }
        // Also where the clock was set back.
        return abs(now - at) >= wait
    }

    /// Somebody looks on behind this device.
    mutating func goOn(after last: String, _ names: [String]) { found = (last, names) }

    mutating func end(_ now: Double, asked: Bool) {
        at = now
        found = nil
        wait = asked ? min(wait * 2, Self.longest) : first
    }
}

/// Whose last messages the controller wants once more.
package enum MessagesWanted: Sendable, Hashable {
    case all
    case devices([String])

    /// From how many devices on it asks for all.
    package static let most = 500
}

extension ControllerState {
    /// Whose reports to ask for: of devices that are connected and listed, and have not done what is ordered, by all that is known.
    ///
    /// - Parameter most: how many devices to look at: there may be 100,000, and others want to read and change what is known of them meanwhile.
    /// - Returns: `nil` where nobody is to be asked for now, or while there are devices to look at (``isLooking``).
    package mutating func nextReportsWanted(now: Double, lookingAt most: Int = .max) -> MessagesWanted? {
        nextWanted(\.askingForReports, now, most) { $0.isOnline == true }
    }

    /// Whose presence to ask for: of the others that have not done what is ordered. They may be there, and nobody has heard it.
    ///
    /// - Parameter most: as of ``nextReportsWanted(now:lookingAt:)``.
    /// - Returns: `nil` where nobody is to be asked for now, or while there are devices to look at (``isLooking``).
    package mutating func nextPresenceWanted(now: Double, lookingAt most: Int = .max) -> MessagesWanted? {
        nextWanted(\.askingForPresence, now, most) { $0.isOnline != true }
    }

    /// Whether not all devices have been looked at, and the rest are to be without a wait.
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
        // By its name: devices may have come and gone meanwhile.
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

// MARK: - What the server refuses

extension ControllerState {
    /// The first wait before an order is sent again that the server did not take, in seconds.
    static let firstRepetition = 5.0

    /// The server did not take what was published, and says why. Devices cannot have heard it: it is sent again until the server takes it.
    ///
    /// - Returns: whether that is news.
    package mutating func refused(_ topic: FleetTopic, _ reason: String, now: Double) -> Bool {
        switch topic {
        case .allDesired where desired != nil: break
        case .desired(let name) where devices[name]?.desired != nil: break
        default: return true
        }
        let isNews = refusals.isEmpty
        if refusals.updateValue(reason, forKey: topic) == nil {
            revision += 1
            // What was refused long ago, and waits long, is no reason for this one to wait as long.
            if isNews { sendingAgain.begin(now) } else { sendingAgain.hasten(now) }
        }
        return isNews
    }

    /// The server has taken what was published.
    package mutating func accepted(_ topic: FleetTopic) {
        guard refusals.removeValue(forKey: topic) != nil else { return }
        revision += 1
        if refusals.isEmpty { sendingAgain = AskingAgain(first: Self.firstRepetition) }
    }

    /// Why the server does not take an order; `nil` where nothing is known of that.
    ///
    /// - Parameter recorded: the order; `nil` for any.
    package func refusal(of recorded: RecordedOrder?) -> String? {
        guard let recorded else { return refusals.values.min() }
        switch recorded.target {
        case .all: return refusals[.allDesired]
        case .devices:
            return refusals.lazy.compactMap { topic, reason in
                if case .desired(let name) = topic, let device = devices[name], recorded.isFor(name, device) {
                    return reason
                }
                return nil
            }.min()
        }
    }

    /// Whether the server has refused something, and has not taken it since.
    package var hasRefusals: Bool { !refusals.isEmpty }

    /// What the server refused is published again when it is time.
    mutating func sendRefusedAgain(_ now: Double) {
        guard !refusals.isEmpty, sendingAgain.isDue(now) else { return }
        for topic in refusals.keys {
            switch topic {
            case .allDesired: mustPublishAll = true
            case .desired(let name): unpublished.insert(name)
            case .heartbeat, .reported, .presence: break
            }
        }
        sendingAgain.end(now, asked: true)
    }
}
