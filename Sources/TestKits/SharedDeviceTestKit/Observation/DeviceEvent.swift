import DBusTransport
import Synchronization

/// Something that happened on a test's device, as a report's timeline shows it.
public struct DeviceEvent: Sendable, Hashable, Codable {
    /// What happened.
    public enum Kind: String, Sendable, Codable, CaseIterable {
        /// Somebody signed in, or out, through the kit.
        case signIn, signOut
        /// The ledger's times: the app was told, reported that it began, that it could not, that it is done, or was waived.
        case told, begun, failed, finished, waived
        /// A process started, or ended.
        case started, ended
        /// Faults: a process stopped, let go on, or killed; somebody else posted the broker's broadcast.
        case stopped, continued, killed, spoofed
        /// The bus carried the broadcast that has apps ask, the broker's or another's.
        case broadcast
    }

    /// In milliseconds since the sign-out; negative before it.
    public let milliseconds: Double
    /// Who: an app's identifier, or ``deviceLane``, ``brokerLane``, ``busLane``.
    public let lane: String
    /// What.
    public let kind: Kind
    /// For people.
    public let text: String

    /// The lane of what the kit does by its own app.
    public static let deviceLane = "device"
    /// The broker's lane.
    public static let brokerLane = "broker"
    /// The bus's lane.
    public static let busLane = "bus"

    /// An event.
    public init(milliseconds: Double, lane: String, kind: Kind, text: String) {
        self.milliseconds = milliseconds
        self.lane = lane
        self.kind = kind
        self.text = text
    }
}

/// What the kit itself did and saw, with the instant of each.
final class ObservationLog: Sendable {
    struct Entry: Sendable {
        let instant: ContinuousClock.Instant
        let lane: String
        let kind: DeviceEvent.Kind
        let text: String
    }

    private let list = Locked<[Entry]>([])

    var entries: [Entry] { list.withLock { $0 } }

    func add(_ lane: String, _ kind: DeviceEvent.Kind, _ text: String) {
        let entry = Entry(instant: .now, lane: lane, kind: kind, text: text)
        list.withLock { $0.append(entry) }
    }
}
