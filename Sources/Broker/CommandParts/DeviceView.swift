import FoundationEssentials
package import SharedDevice

/// A snapshot of a device as an observer knows it. Pure.
package struct DeviceView: Sendable, Equatable {
    package enum Link: String, Sendable, Encodable {
        case asking
        case responds
        /// The broker does not respond. The session is then unknown, which differs from “no user signed in” (CO-4).
        case gone
        /// The observer lacks the right to see the device.
        case denied
    }

    /// The maximum number of log entries; the oldest are removed first.
    package static let mostEntries = 200

    package private(set) var link = Link.asking
    /// As of the last response.
    package private(set) var device: ObservedDevice?
    /// The latest round of cleanups.
    package private(set) var round: CleanupReport?
    /// Oldest first.
    package private(set) var entries: [ObservedEntry] = []

    package init() {}

    /// The session that a user could end now; `nil` if there is none, or if it is unknown.
    package var openSession: UInt64? {
        guard link == .responds, let device, device.account != nil else { return nil }
        return device.epoch
    }

    package mutating func take(_ device: ObservedDevice, _ round: CleanupReport?) {
        (self.device, self.round, link) = (device, round, .responds)
    }

    /// The request failed. If the observer lost the right to see the device, the known data is cleared, too.
    package mutating func lose(_ link: Link) {
        if link == .denied { self = DeviceView() }
        self.link = link
    }

    package mutating func add(_ news: [ObservedEntry]) {
        let last = entries.last?.sequence ?? 0
        entries = (entries + news.filter { $0.sequence > last }).suffix(Self.mostEntries)
    }
}
