/// A topic of the fleet's, below `sd/1/FLEET/`.
package enum FleetTopic: Sendable, Hashable {
    /// The highest order for everybody.
    case allDesired
    /// Each minute: that the controller is there, and its highest order for everybody.
    case heartbeat
    /// The highest order for one device.
    case desired(device: String)
    /// A device's state.
    case reported(device: String)
    /// Whether a device is connected.
    case presence(device: String)
}

/// The topics of one fleet.
package struct FleetTopics: Sendable, Hashable {
    package let fleet: String

    /// - Returns: `nil` where the name is none, see ``isName(_:)``.
    package init?(fleet: String) {
        guard Self.isName(fleet) else { return nil }
        self.fleet = fleet
    }

    private var root: String { "sd/1/\(fleet)/" }

    /// Whether fleets and devices can be called so: 1 to 64 small letters of ASCII, digits and dashes. Nothing of it means anything in a topic.
    package static func isName(_ text: String) -> Bool {
        let bytes = text.utf8
        return (1...64).contains(bytes.count)
            && bytes.allSatisfy { (0x61...0x7A).contains($0) || (0x30...0x39).contains($0) || $0 == UInt8(ascii: "-") }
    }

    /// The topic as the server knows it.
    package func text(_ topic: FleetTopic) -> String {
        switch topic {
        case .allDesired: root + "all/desired"
        case .heartbeat: root + "all/heartbeat"
        case .desired(let device): root + "dev/\(device)/desired"
        case .reported(let device): root + "dev/\(device)/reported"
        case .presence(let device): root + "dev/\(device)/presence"
        }
    }

    /// What a device subscribes to.
    package func forDevice(_ device: String) -> [String] {
        [text(.heartbeat), text(.allDesired), text(.desired(device: device))]
    }

    /// What the controller subscribes to.
    package var forController: [String] { [root + "dev/+/reported", allPresence] }

    /// Each device's ``FleetTopic/presence(device:)``.
    package var allPresence: String { root + "dev/+/presence" }

    /// The topic of this text; `nil` where it is none of this fleet's.
    package func topic(_ text: String) -> FleetTopic? {
        guard text.hasPrefix(root) else { return nil }
        let parts = text.dropFirst(root.count).split(separator: "/", omittingEmptySubsequences: false).map(String.init)
        switch (parts.first, parts.count) {
        case ("all", 2):
            return parts[1] == "desired" ? .allDesired : parts[1] == "heartbeat" ? .heartbeat : nil
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
