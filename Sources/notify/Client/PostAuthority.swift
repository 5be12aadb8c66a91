import DBusTransport
import NotifyCenter
import NotifydProtocol
import Synchronization

/// Tells whether a post of a name that is not everybody's comes from one who may post it. The bus carries it from anybody; its
/// word on who the sender is decides.
final class PostAuthority: Sendable {
    private struct State {
        /// By unique bus name, which a bus gives out once; `nil` for who was gone before the bus was asked.
        var known: [String: AccessRules.Identity?] = [:]
        /// Posts that wait until the bus has told of their senders; one stands for all of a name.
        var waiting: [String: [NotificationName: @Sendable () -> Void]] = [:]
    }

    /// Enough for who posts such names; where it does not suffice, the bus is asked again.
    private static let capacity = 1024

    private let state = Locked(State())

    /// Calls `deliver` if `sender` may post `name`: right here if the sender is known, else once the bus has told.
    func check(
        _ sender: String?,
        _ name: NotificationName,
        _ rules: AccessRules,
        deliver: @escaping @Sendable () -> Void
    ) {
        guard let sender, let connection = try? BusConnections.connection(to: .fromEnvironment) else { return }
        if sender == connection.uniqueName {
            // notify_post has asked before.
            return deliver()
        }
        enum Step: Sendable {
            case decide(AccessRules.Identity?)
            case ask, wait
        }
        let step = state.withLock { state -> Step in
            if let identity = state.known[sender] { return .decide(identity) }
            let isAsked = state.waiting[sender] != nil
            state.waiting[sender, default: [:]][name] = deliver
            return isAsked ? .wait : .ask
        }
        switch step {
        case .decide(let identity):
            if identity.map({ rules.allows(.write, name.rawValue, by: $0) }) == true { deliver() }
        case .wait: break
        case .ask: Task { await self.ask(connection, sender, rules) }
        }
    }

    private func ask(_ connection: DBusConnection, _ sender: String, _ rules: AccessRules) async {
        let credentials = try? await connection.credentials(of: sender)
        let identity = credentials.map { AccessRules.Identity(user: $0.userID, groups: $0.groupIDs) }
        let waiting = state.withLock { state in
            if state.known.count >= Self.capacity { state.known = [:] }
            state.known.updateValue(identity, forKey: sender)
            return state.waiting.removeValue(forKey: sender) ?? [:]
        }
        guard let identity else { return }
        for (name, deliver) in waiting where rules.allows(.write, name.rawValue, by: identity) { deliver() }
    }

    /// Another bus gives the same names to others.
    func forget() { state.withLock { $0.known = [:] } }
}
