/// The device as its broker says it is.
package struct DeviceView: Sendable, Hashable {
    package let mode: String
    /// The session, while somebody is signed in; else the number of the last change.
    package let epoch: UInt64
    package let isSignedIn: Bool
    /// The rounds that are open, and the newest one.
    package let rounds: [DeviceReport.Round]
    /// Whether the broker's disk has it who is signed in. Until then a power cut may open the session again that was ended.
    package let isStored: Bool

    package init(
        mode: String,
        epoch: UInt64,
        isSignedIn: Bool,
        rounds: [DeviceReport.Round],
        isStored: Bool = true
    ) {
        self.mode = mode
        self.epoch = epoch
        self.isSignedIn = isSignedIn
        self.rounds = rounds
        self.isStored = isStored
    }
}

/// What the agent learns.
package enum AgentEvent: Sendable, Hashable {
    /// The server has accepted the agent.
    case connected
    case disconnected
    case desired(OrderScope, FleetOrder)
    case heartbeat(highest: UInt64)
    /// The server did not take a report, or the presence.
    case refused
    /// Something on a topic of the fleet's that means nothing.
    case foreign(String)
    case device(DeviceView)
    /// The broker does not answer, or refuses to.
    case deviceUnknown(String)
    /// The answer to ``AgentEffect/signOut(session:reason:)``.
    case signOutAnswered(SignOutAnswer)
    /// What the agent knows is on the disk; or not, and why.
    case stored(problem: String?)
    case clockSynchronised(Bool)
    /// When the device's certificate ends, in seconds since 1970; `nil` where its file does not say it.
    case certificate(end: Double?)
    /// Time has passed.
    case tick

    package enum SignOutAnswer: Sendable, Hashable {
        /// The session is over.
        case ended
        /// It is over, and the broker's disk does not have it yet.
        case endedUnstored
        /// It was over before.
        case overAlready
        case refused(String)
        case failed(String)
    }
}

/// What the agent has to do, in this order.
package enum AgentEffect: Sendable, Hashable {
    case subscribe
    case publishPresence
    case publish(DeviceReport)
    /// Keep this over a restart. Effects that follow wait for it.
    case store(AgentMemory)
    case signOut(session: UInt64, reason: String)
    /// Ask the broker now. From here on ``AgentEvent/device(_:)`` and ``AgentEvent/deviceUnknown(_:)`` answer this question, or a later one.
    case askDevice
    /// For the administrator's log.
    case note(String)
}

/// What an agent knows after a restart.
package struct AgentMemory: Sendable, Hashable {
    /// An order that was begun: the session that it ends, so that it ends no later one after a crash.
    package struct Intent: Sendable, Hashable {
        package let order: UInt64
        package let session: UInt64

        package init(order: UInt64, session: UInt64) { (self.order, self.session) = (order, session) }
    }

    /// The session that is open, and since when at the least.
    package struct Session: Sendable, Hashable {
        package let epoch: UInt64
        package internal(set) var since: Stopwatch

        package init(epoch: UInt64, since: Stopwatch) { (self.epoch, self.since) = (epoch, since) }
    }

    package var seen = DeviceReport.Seen()
    package var intents: [OrderScope: Intent] = [:]
    package var result: DeviceReport.Result?
    /// No report has a higher number.
    package var sequenceLimit: UInt64 = 0
    /// When the controller was last heard of.
    package var contact: Stopwatch?
    package var session: Session?
    /// The newest session that it has ended for want of contact.
    package var ended: UInt64 = 0
    /// What the last configuration that could be read says. It holds while there is none.
    package var policy: AgentState.Policy?
    /// Why this memory was begun anew without the one before, whose orders are not known: with it the agent keeps its limits, and hears of no order.
    package var damage: String?

    package init() {}
}

/// Which of the broker's answers count: those to questions that were asked after the state asked last (``AgentEffect/askDevice``), and of these none that
/// is older than one that has come.
package struct QuestionOrder: Sendable {
    /// To be kept with a question from before it is asked.
    package private(set) var latest: UInt64 = 0
    private var newest: UInt64?

    package init() {}

    /// The state asks: what was asked before counts for nothing.
    package mutating func begin() {
        latest += 1
        newest = nil
    }

    /// Takes an answer.
    ///
    /// - Parameter revision: the device's; `nil` where the broker has not answered.
    /// - Returns: whether the answer counts, and the revision that whoever follows the broker knows now. By an answer that does not count it knows none: it
    ///   would wait for the next change otherwise, and this one would reach nobody until then.
    package mutating func take(_ number: UInt64, revision: UInt64?) -> (counts: Bool, known: UInt64?) {
        guard number == latest else { return (false, nil) }
        // A broker that has started again counts from the beginning: the next answer counts in any case.
        if let revision, let newest, revision < newest {
            self.newest = nil
            return (false, nil)
        }
        newest = revision
        return (true, revision)
    }
}
