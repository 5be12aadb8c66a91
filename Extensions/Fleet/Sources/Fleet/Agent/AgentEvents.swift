package import Cryptography

/// The device's state, as its broker reports it.
package struct DeviceView: Sendable, Hashable {
    package let mode: String
    /// The session while a user is signed in; otherwise the number of the last change.
    package let epoch: UInt64
    package let isSignedIn: Bool
    /// The open rounds and the newest one.
    package let rounds: [DeviceReport.Round]
    /// Whether the present state is on the broker's disk. Until then a power cut may reopen a session that has ended.
    package let isStored: Bool

    package init(mode: String, epoch: UInt64, isSignedIn: Bool, rounds: [DeviceReport.Round], isStored: Bool = true) {
        (self.mode, self.epoch, self.isSignedIn) = (mode, epoch, isSignedIn)
        (self.rounds, self.isStored) = (rounds, isStored)
    }
}

package enum AgentEvent: Sendable, Hashable {
    /// The server has accepted the agent.
    case connected
    case disconnected
    case desired(OrderScope, FleetOrder)
    case heartbeat(highest: UInt64)
    /// The server rejected a report or the presence.
    case refused
    /// An invalid message on a topic of the fleet.
    case foreign(String)
    case device(DeviceView)
    /// The broker does not respond, or refuses the request.
    case deviceUnknown(String)
    /// The response to ``AgentEffect/signOut(session:reason:)``.
    case signOutAnswered(SignOutAnswer)
    /// The memory was stored; or it was not, with the reason.
    case stored(problem: String?)
    case clockSynchronised(Bool)
    /// When the device's certificate ends, in seconds since 1970; `nil` without a configuration.
    case certificate(end: Result<Double, CertificateFileError>?)
    case tick

    package enum SignOutAnswer: Sendable, Hashable {
        case ended
        /// The session is over, but not yet on the broker's disk.
        case endedUnstored
        case overAlready
        case refused(String)
        case failed(String)
    }
}

/// The effects of an event, to perform in order.
package enum AgentEffect: Sendable, Hashable {
    case subscribe
    case publishPresence
    case publish(DeviceReport)
    /// Stores the memory. Later effects wait until it is stored.
    case store(AgentMemory)
    case signOut(session: UInt64, reason: String)
    /// Asks the broker now. Responses to earlier requests must not become events.
    case askDevice
    /// Writes to the administrator's log.
    case note(String)
}

/// The state that an agent keeps across restarts.
package struct AgentMemory: Sendable, Hashable {
    /// An order in progress with the session that it ends, so that after a crash it ends no later session.
    package struct Intent: Sendable, Hashable {
        package let order: UInt64
        package let session: UInt64

        package init(order: UInt64, session: UInt64) { (self.order, self.session) = (order, session) }
    }

    /// The open session, with a lower bound of its age.
    package struct Session: Sendable, Hashable {
        package let epoch: UInt64
        package internal(set) var since: Stopwatch

        package init(epoch: UInt64, since: Stopwatch) { (self.epoch, self.since) = (epoch, since) }
    }

    package var seen = DeviceReport.Seen()
    package var intents: [OrderScope: Intent] = [:]
    package var result: DeviceReport.Result?
    /// The upper bound of the sequence numbers that reports have used.
    package var sequenceLimit: UInt64 = 0
    /// When the controller was last heard.
    package var contact: Stopwatch?
    package var session: Session?
    /// The newest session that the agent ended for lack of contact.
    package var ended: UInt64 = 0
    /// The policy of the last readable configuration. It applies while the configuration cannot be read.
    package var policy: AgentState.Policy?
    /// Why this memory replaced an unreadable one. The agent then keeps its time limits, and receives no orders.
    package var damage: String?

    package init() {}
}

/// Decides which responses of the broker count: only those to questions asked after the state's last
/// ``AgentEffect/askDevice``, and none that is older than one already taken.
package struct QuestionOrder: Sendable {
    /// The number to keep with a question before it is asked.
    package private(set) var latest: UInt64 = 0
    private var newest: UInt64?

    package init() {}

    /// Starts a new question of the state. Responses to earlier questions no longer count.
    package mutating func begin() {
        latest += 1
        newest = nil
    }

    /// Takes a response; `revision` is `nil` if the broker has not responded. Returns whether the response counts, and
    /// the revision from which to wait for changes: `nil` after a response that does not count, because otherwise the
    /// discarded state would be missed until the next change.
    package mutating func take(_ number: UInt64, revision: UInt64?) -> (counts: Bool, known: UInt64?) {
        guard number == latest else { return (false, nil) }
        // A restarted broker counts from the beginning, so the next response counts in any case.
        if let revision, let newest, revision < newest {
            self.newest = nil
            return (false, nil)
        }
        newest = revision
        return (true, revision)
    }
}
