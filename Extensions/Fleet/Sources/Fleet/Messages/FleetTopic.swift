/// A topic of the fleet, below `sd/1/FLEET/`.
package enum FleetTopic: Sendable, Hashable {
    /// The highest order for all devices.
    case allDesired
    /// Published every minute: the controller is present, with its highest order for all devices.
    case heartbeat
    /// The highest order for one device.
    case desired(device: String)
    /// A device's state.
    case reported(device: String)
    /// Whether a device is connected.
    case presence(device: String)
}

package struct FleetTopics: Sendable, Hashable {
    package let fleet: String

    /// - Returns: `nil` if the name is invalid, see ``isName(_:)``.
    package init?(fleet: String) {
        guard Self.isName(fleet) else { return nil }
        self.fleet = fleet
    }

    private var root: String { "sd/1/\(fleet)/" }

    /// Whether the text is a valid name of a fleet or device. None of its characters has a special meaning in a topic.
    package static func isName(_ text: String) -> Bool {
        let bytes = text.utf8
        return (1...64).contains(bytes.count)
            && bytes.allSatisfy { (0x61...0x7A).contains($0) || (0x30...0x39).contains($0) || $0 == UInt8(ascii: "-") }
    }

    package func text(_ topic: FleetTopic) -> String {
        switch topic {
        case .allDesired: root + "all/desired"
        case .heartbeat: root + "all/heartbeat"
        case .desired(let device): root + "dev/\(device)/desired"
        case .reported(let device): root + "dev/\(device)/reported"
        case .presence(let device): root + "dev/\(device)/presence"
        }
    }

    /// The topics that a device subscribes to.
    package func forDevice(_ device: String) -> [String] {
        [text(.heartbeat), text(.allDesired), text(.desired(device: device))]
    }

    /// The topics that the controller subscribes to.
    package var forController: [String] { [root + "dev/+/reported", allPresence] }

    /// The filter for all devices' ``FleetTopic/presence(device:)``.
    package var allPresence: String { root + "dev/+/presence" }

    /// Parses a topic; `nil` if it is not a topic of this fleet.
    package func topic(_ text: String) -> FleetTopic? {
        guard text.hasPrefix(root) else { return nil }
        let parts = text.dropFirst(root.count).split(separator: "/", omittingEmptySubsequences: false).map(String.init)
        switch (parts.first, parts.count) {
        case ("all", 2): return parts[1] == "desired" ? .allDesired : parts[1] == "heartbeat" ? .heartbeat : nil
        case ("dev", 3) where Self.isName(parts[1]):
            return switch parts[2] {
            case "desired": .desired(device: parts[1])
            case "reported": .reported(device: parts[1])
            case "presence": .presence(device: parts[1])
            default: nil
            }
        default: return nil
        }
    }
}
