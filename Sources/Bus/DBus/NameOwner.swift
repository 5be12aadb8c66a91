import Basics
import Synchronization

/// Tracks the owner of a bus name, in order with the other messages of a connection: when a call from a new owner is
/// handled, this already knows the owner.
public final class NameOwner: Sendable {
    private struct State {
        var owner: String?
        /// Incremented each time the owner is set, to recognise an outdated response.
        var generation: UInt64 = 0
        var watch: (tokens: [Observation], lease: MatchRuleLease)?
    }

    private let name: String
    private let connection: DBusConnection
    private let changed: @Sendable (String?) -> Void
    private let state = Locked(State())

    /// - Parameter changed: called for each change, on the reading thread or in the task that asked the bus.
    public init(of name: String, on connection: DBusConnection, changed: @escaping @Sendable (String?) -> Void) {
        (self.name, self.connection, self.changed) = (name, connection, changed)
    }

    /// The connection that owns the name; `nil` if there is none, or the bus is lost.
    public var current: String? { state.withLock { $0.owner } }

    /// Starts to watch. On return the current owner is known.
    public func start() async throws(DBusError) {
        // Connects first, without holding a thread of the concurrency pool: `onEvent` would block it.
        try await connection.connect()
        let tokens = [
            connection.onSignal { [weak self] in self?.receive($0) },
            try connection.onEvent { [weak self] event in
                switch event {
                case .lost: self?.set(nil)
                case .restored: Task { await self?.ask() }
                }
            },
        ]
        let lease = try await connection.addMatch(
            MatchRule(
                signalFrom: "org.freedesktop.DBus",
                interface: "org.freedesktop.DBus",
                member: "NameOwnerChanged",
                argument0: name
            )
        )
        state.withLock { $0.watch = (tokens, lease) }
        let generation = state.withLock { $0.generation }
        set(try await connection.owner(of: name), ifStill: generation)
    }

    private func ask() async {
        let generation = state.withLock { $0.generation }
        while true {
            do throws(DBusError) {
                return set(try await connection.owner(of: name), ifStill: generation)
            } catch {
                // After another outage, the next restoration asks. Other errors may be temporary.
                guard error.code != .disconnected, error.code != .closed else { return }
                try? await Task.sleep(for: .seconds(1))
            }
        }
    }

    private func receive(_ message: borrowing DBusMessage) {
        guard let change = message.ownerChange(), change.name == name else { return }
        set(change.owner.isEmpty ? nil : change.owner)
    }

    /// - Parameter generation: the generation at the time of the request; an outdated response is ignored.
    private func set(_ owner: String?, ifStill generation: UInt64? = nil) {
        let isChange = state.withLock { state -> Bool in
            guard generation == nil || generation == state.generation else { return false }
            state.generation += 1
            defer { state.owner = owner }
            return state.owner != owner
        }
        if isChange { changed(owner) }
    }
}

extension DBusMessage {
    /// Returns the bus's report that a name has a new owner, which is empty if there is none; `nil` for any other
    /// message.
    package borrowing func ownerChange() -> (name: String, owner: String)? {
        guard isBusSignal("NameOwnerChanged"), let arguments = try? arguments(), arguments.count == 3,
            let name = arguments[0].stringValue, let owner = arguments[2].stringValue
        else { return nil }
        return (name, owner)
    }
}
