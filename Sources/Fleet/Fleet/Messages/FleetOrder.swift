package import StrictJSON

/// Whom an order is for: everybody, or one device.
package enum OrderScope: String, Sendable, Hashable, CaseIterable {
    case all
    case own
}

/// What the controller wants of a device: that a session is over.
package struct FleetOrder: Sendable, Hashable {
    /// The longest reason, in characters.
    package static let longestReason = 200

    /// Orders of one fleet have one row of numbers, which only grow.
    package let number: UInt64
    /// The newest session that it is about; `nil` for whatever session is open when the order arrives.
    package let session: UInt64?
    /// Why, for the log. It names no person.
    package let reason: String

    package init(number: UInt64, session: UInt64? = nil, reason: String) {
        self.number = number
        self.session = session
        self.reason = reason
    }

    package var json: JSONValue {
        var members: [String: JSONValue] = [
            "order": .number(number), "action": .string("sign-out"), "reason": .string(reason),
        ]
        if let session { members["session"] = .number(session) }
        return .object(members)
    }

    package init(_ json: JSONValue) throws(FleetMessageError) {
        guard json["action"]?.string == "sign-out" else { throw FleetMessageError("it orders something unknown") }
        self.init(
            number: try json.whole("order"),
            session: try json.wholeIfThere("session"),
            reason: json["reason"] == nil ? "" : try json.words("reason", atMost: Self.longestReason)
        )
    }
}
