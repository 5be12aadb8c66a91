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
        /// A reason that this version does not know.
        case other
    }

    /// The time of the end, by the device's clock. Activity moves the end after inactivity.
    public let at: Date
    /// The rule that ends the session.
    public let reason: Reason
    /// Whether the end is so near that the person should be warned.
    public let isSoon: Bool

    /// Creates a value, for instance for tests.
    public init(at: Date, reason: Reason, isSoon: Bool) {
        (self.at, self.reason, self.isSoon) = (at, reason, isSoon)
    }
}

extension SessionEnd {
    @_spi(Extensions) public var fields: BrokerProtocol.Fields {
        var fields: BrokerProtocol.Fields = [
            "endsAt": .double(at.timeIntervalSince1970), "endReason": .string(reason.rawValue),
        ]
        if isSoon { fields["endingSoon"] = .boolean(true) }
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
            isSoon: fields["endingSoon"]?.booleanValue ?? false
        )
    }
}
