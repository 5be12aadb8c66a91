import DBus
public import FoundationEssentials

/// When the present session ends by itself, as of the broker's response.
public struct SessionEnd: Sendable, Hashable, Codable {
    /// Why a session ends by itself. Later versions may add reasons: a `switch` needs a `default`.
    public enum Reason: String, Sendable, Codable {
        /// The device was not used. Only this end is moved by activity.
        case inactivity
        /// The end of a shift.
        case shiftEnd
        /// The longest time of a session.
        case longestSession
        /// The session is locked, and its person has not come back. Only this person's sign-in moves this end.
        case lock
        /// A reason that this version does not know.
        case other
    }

    /// The time of the end, by the device's clock. Activity moves the end after inactivity.
    public let at: Date
    /// The rule that ends the session.
    public let reason: Reason
    /// Whether the end is so near that the person should be warned.
    public let isSoon: Bool
    /// Whether the screen is locked at this time instead, and the session goes on for its person.
    public let locks: Bool

    /// Creates a value, for instance for tests.
    public init(at: Date, reason: Reason, isSoon: Bool, locks: Bool = false) {
        (self.at, self.reason, self.isSoon, self.locks) = (at, reason, isSoon, locks)
    }
}

extension SessionEnd {
    @_spi(Extensions) public var fields: BrokerProtocol.Fields {
        var fields: BrokerProtocol.Fields = [
            "endsAt": .double(at.timeIntervalSince1970), "endReason": .string(reason.rawValue),
        ]
        if isSoon { fields["endingSoon"] = .boolean(true) }
        if locks { fields["endLocks"] = .boolean(true) }
        return fields
    }

    /// Returns `nil` if no session is open, or if it does not end by itself.
    @_spi(Extensions) public init?(_ fields: BrokerProtocol.Fields) {
        // The limit is the year 9999, which every calendar supports.
        guard case .double(let at)? = fields["endsAt"], (0...253_402_300_799).contains(at),
            let reason = fields["endReason"]?.stringValue
        else { return nil }
        self.init(
            at: Date(timeIntervalSince1970: at),
            reason: Reason(rawValue: reason) ?? .other,
            isSoon: fields["endingSoon"]?.booleanValue ?? false,
            locks: fields["endLocks"]?.booleanValue ?? false
        )
    }
}

/// Whether the session is about to end by itself.
public enum SessionWarning: Sendable, Hashable {
    /// The end is not near, no account is signed in, or the broker does not respond.
    case noWarning
    /// The session ends at this time, by the device's clock.
    case endingSoon(reason: SessionEnd.Reason, at: Date)

    init(_ end: SessionEnd?) {
        self = if let end, end.isSoon { .endingSoon(reason: end.reason, at: end.at) } else { .noWarning }
    }
}

/// The warnings before the session ends by itself, and their withdrawals. The first element comes at once; no element
/// is the same as the one before.
public struct SessionWarnings: AsyncSequence, Sendable {
    let broker: BrokerClient

    /// Creates an iterator. It starts to listen with its first `next()`.
    public func makeAsyncIterator() -> Iterator { Iterator(broker: broker) }

    /// Waits for one warning after the other.
    public struct Iterator: AsyncIteratorProtocol {
        private let broker: BrokerClient
        private var triggers = ChangeTriggers()
        private var last: SessionWarning?

        init(broker: BrokerClient) { self.broker = broker }

        /// Returns the next warning or its withdrawal, or `nil` when the task is cancelled.
        public mutating func next(isolation: isolated (any Actor)?) async -> SessionWarning? {
            while await triggers.wait(isolation) {
                let warning = await ask(isolation)
                if Task.isCancelled { return nil }
                guard warning != last else { continue }
                last = warning
                return warning
            }
            return nil
        }

        private mutating func ask(_ isolation: isolated (any Actor)?) async -> SessionWarning {
            do throws(SharedDeviceError) {
                try await triggers.listen(to: broker)
                return SessionWarning(
                    SessionEnd(try await broker.call(.getDeviceInformation, attempted: "ask when the session ends"))
                )
            } catch {
                triggers.askAgainLater()
                return .noWarning
            }
        }
    }
}
