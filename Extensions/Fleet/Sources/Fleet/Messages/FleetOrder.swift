package import Basics

/// The target of an order: all devices or one.
package enum OrderScope: String, Sendable, Hashable, CaseIterable {
    case all
    case own
}

/// An order of the controller to a device: to end a session.
package struct FleetOrder: Sendable, Hashable {
    /// The longest reason, in characters.
    package static let longestReason = 200

    /// Unique in a fleet and increasing.
    package let number: UInt64
    /// The newest session to end; `nil` for the session that is open when the order arrives.
    package let session: UInt64?
    /// The reason for the log. It must not name a person.
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
        guard json["action"]?.string == "sign-out" else { throw FleetMessageError("“action” has an unknown value") }
        self.init(
            number: try json.whole("order"),
            session: try json.wholeIfThere("session"),
            reason: json["reason"] == nil ? "" : try json.words("reason", atMost: Self.longestReason)
        )
    }
}
