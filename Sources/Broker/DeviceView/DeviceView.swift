import FoundationEssentials
package import SharedDevice

/// What an observer of a device knows of it at one moment. Pure.
package struct DeviceView: Sendable, Equatable {
    /// What became of the last question to the broker.
    package enum Link: String, Sendable, Encodable {
        case asking
        case answers
        /// It does not answer: who is signed in is unknown, and never nobody (CO-4).
        case gone
        /// The observer may not see the device.
        case denied
    }

    /// As many entries of the log as are kept; the oldest go first.
    package static let mostEntries = 200

    package private(set) var link = Link.asking
    /// As of the last answer.
    package private(set) var device: ObservedDevice?
    /// The newest one.
    package private(set) var round: CleanupReport?
    /// Oldest first.
    package private(set) var entries: [ObservedEntry] = []

    package init() {}

    /// The session that somebody may end; `nil` where nobody is signed in, or nobody knows.
    package var openSession: UInt64? {
        guard link == .answers, let device, device.account != nil else { return nil }
        return device.epoch
    }

    package mutating func take(_ device: ObservedDevice, _ round: CleanupReport?) {
        (self.device, self.round, link) = (device, round, .answers)
    }

    /// No answer came. What somebody saw while they had the right is not theirs to see now.
    package mutating func lose(_ link: Link) {
        if link == .denied { self = DeviceView() }
        self.link = link
    }

    package mutating func add(_ news: [ObservedEntry]) {
        let last = entries.last?.sequence ?? 0
        entries = (entries + news.filter { $0.sequence > last }).suffix(Self.mostEntries)
    }
}
