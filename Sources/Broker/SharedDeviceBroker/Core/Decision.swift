import Logging

/// An action that a feature requires. Features change only their own state; ``BrokerState`` applies their decisions, in
/// their order.
enum Decision: Sendable {
    /// Sends a request to the bus, logind or the identity service, or tells it something.
    case perform(Effect)
    /// Signs the person out, and ends a sign-in whose session is being committed.
    case end(cause: String)
    case log(AuditEntry.Event, session: UInt64? = nil, app: String? = nil, detail: String)
    case note(Logger.Level, String, [String: String])
}

extension BrokerState {
    mutating func apply(_ decisions: [Decision]) {
        for decision in decisions {
            switch decision {
            case .perform(let effect): effects.append(effect)
            case .end(let cause): signOutAutomatically(because: cause)
            case .log(let event, let session, let app, let detail):
                enterLog(event, session: session, app: app, detail: detail)
            case .note(let level, let text, let details): effects.append(.note(level, text, details))
            }
        }
    }
}
