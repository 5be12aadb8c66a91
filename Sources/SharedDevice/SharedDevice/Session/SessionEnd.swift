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
        self.at = at
        self.reason = reason
        self.isSoon = isSoon
        self.locks = locks
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

/// The warnings before the session ends by itself. An element is the end if it is near (``SessionEnd/isSoon``), and
/// `nil` if it is not, if no account is signed in, or if the broker does not respond. The first element comes at once.
/// Two elements in a row are never equal.
public struct SessionWarnings: AsyncSequence, Sendable {
    let broker: BrokerClient

    /// Creates an iterator. It starts to listen with its first `next()`.
    public func makeAsyncIterator() -> Iterator { Iterator(broker: broker) }

    /// Waits for one warning after the other.
    public struct Iterator: AsyncIteratorProtocol {
        private let broker: BrokerClient
        private var triggers = ChangeTriggers()
        private var last: SessionEnd??

        init(broker: BrokerClient) { self.broker = broker }

        /// Returns the next element, or `nil` when the task is cancelled.
        public mutating func next(isolation: isolated (any Actor)?) async -> SessionEnd?? {
            while await triggers.wait(isolation) {
                var end: SessionEnd?
                do throws(SharedDeviceError) {
                    try await triggers.listen(to: broker)
                    let device = try await broker.call(.getDeviceInformation, attempted: "ask when the session ends")
                    end = SessionEnd(device).flatMap { $0.isSoon ? $0 : nil }
                } catch {
                    triggers.askAgainLater()
                }
                if Task.isCancelled { return nil }
                guard last != .some(end) else { continue }
                last = .some(end)
                return .some(end)
            }
            return nil
        }
    }
}
