import DBusTransport
import NotifyCenter
import NotifydProtocol
import Synchronization

/// Keeps notifyd informed of the names that this process has registered, if notifyd runs; nothing here starts it or waits for it.
///
/// What is told is decided on the reading thread, from what is registered then: so it is told in an order that ends right.
final class NotifydLink: Sendable {
    private enum Presence {
        /// Nobody has asked so far, or the bus was lost.
        case unknown
        /// It does not run; it says so itself when it starts.
        case absent
        /// It runs, under this unique name.
        case present(String)
    }

    private struct State {
        var presence = Presence.unknown
        /// The names that notifyd knows of.
        var told: Set<NotificationName> = []
        var connection: DBusConnection?
        /// Keep the rule and the handlers in place.
        var lease: MatchRuleLease?
        var handlers: [HandlerToken] = []
    }

    private let state = Locked(State())

    /// Has notifyd heard, with the first registration.
    func begin(_ client: NotifyClient) {
        guard let connection = try? BusConnections.connection(to: .fromEnvironment) else { return }
        let isFirst = state.withLock { state in
            guard state.connection == nil else { return false }
            state.connection = connection
            return true
        }
        guard isFirst else { return }
        do throws(DBusError) {
            let handlers = [
                connection.onSignal { [weak client] message in client?.link.receive(message, client) },
                try connection.onEvent { [weak client] event in client?.link.handle(event, client) },
            ]
            let lease = try connection.addMatch(NotifydProtocol.tellRule)
            state.withLock { state in
                state.handlers = handlers
                state.lease = lease
            }
            askWhetherItRuns(client)
        } catch {
            // A bus that fails here fails the registration next, or is lost, and then begun with anew.
            state.withLock { $0.connection = nil }
        }
    }

    // MARK: Telling

    /// A name has got its first registration, or lost its last.
    func changed(_ name: NotificationName, _ client: NotifyClient) {
        let connection = state.withLock { state -> DBusConnection? in
            guard case .present = state.presence else { return nil }
            return state.connection
        }
        connection?.perform { [weak client] in client.map { self.tell(name, $0) } }
    }

    /// notifyd knows of the name by a call that it answered.
    func entered(_ name: NotificationName, _ client: NotifyClient) {
        state.withLock { _ = $0.told.insert(name) }
        // Where the last registration went meanwhile, it must hear of that too.
        changed(name, client)
    }

    /// A path is not to be monitored any more.
    func unmonitor(_ token: CInt) {
        guard let connection = state.withLock({ $0.connection }) else { return }
        send(.unmonitor, [.int32(token)], connection)
    }

    /// An answer came from this notifyd.
    func answered(by owner: String?) {
        if let owner { state.withLock { $0.presence = .present(owner) } }
    }

    /// On the reading thread.
    private func tell(_ name: NotificationName, _ client: NotifyClient) {
        let isRegistered = client.withTable { $0.resource(of: name) != nil }
        let connection = state.withLock { state -> DBusConnection? in
            guard case .present = state.presence, state.told.contains(name) != isRegistered else { return nil }
            if isRegistered { state.told.insert(name) } else { state.told.remove(name) }
            return state.connection
        }
        guard let connection else { return }
        send(isRegistered ? .enter : .leave, [.array([.string(name.rawValue)], of: "s")], connection)
    }

    /// A notifyd that does not run needs to be told nothing, and a bus that is lost is reported as such.
    private func send(_ method: NotifydProtocol.Method, _ arguments: [DBusValue], _ connection: DBusConnection) {
        guard let message = try? NotifydProtocol.call(method, arguments, options: [.noAutoStart, .noReply]) else {
            return
        }
        try? connection.send(message)
    }

    /// Asks the bus once, without starting it, and tells it all if it runs.
    private func askWhetherItRuns(_ client: NotifyClient) {
        guard let connection = state.withLock({ $0.connection }) else { return }
        Task { [weak client] in
            let owner = await Self.running(connection)
            let isNews = self.state.withLock { state in
                // What it has said itself meanwhile is newer.
                guard case .unknown = state.presence else { return false }
                state.presence = owner.map(Presence.present) ?? .absent
                return true
            }
            guard isNews, let owner else { return }
            connection.perform { [weak client] in
                if let client { self.report(to: owner, 0, false, client) }
            }
        }
    }

    /// The unique name of the notifyd that runs.
    private static func running(_ connection: DBusConnection) async -> String? {
        do throws(DBusError) {
            let message = try NotifydProtocol.call(.enter, [.array([], of: "s")], options: .noAutoStart)
            return try await connection.call(message).first?.stringValue
        } catch {
            // It does not run. A bus that is lost is asked again when it is back.
            return nil
        }
    }

    // MARK: Listening, on the reading thread

    private func receive(_ message: borrowing DBusMessage, _ client: NotifyClient?) {
        guard let client, message.path == NotifydProtocol.path, message.interface == NotifydProtocol.interface,
            let signal = message.member.flatMap(NotifydProtocol.Signal.init), let sender = message.sender,
            let arguments = try? message.arguments()
        else { return }
        if signal == .tell {
            // To all, so that it came by the rule, which has the bus check whose name the sender has.
            guard !message.isDirected, arguments.count == 2, let inquiry = arguments[0].unsignedValue,
                let isDetailed = arguments[1].booleanValue
            else { return }
            return report(to: sender, inquiry, isDetailed, client)
        }
        guard case .present(sender) = state.withLock({ $0.presence }) else { return }
        switch signal {
        case .suspend: client.suspendProcess()
        case .resume: client.resumeProcess()
        case .changed:
            if case .int32(let token) = arguments.first { client.fire(token) }
        case .tell: break
        }
    }

    private func report(to owner: String, _ inquiry: UInt64, _ isDetailed: Bool, _ client: NotifyClient) {
        let report = client.withTable { $0.report(of: { NameScope($0.rawValue) != .process }, detailed: isDetailed) }
        let connection = state.withLock { state -> DBusConnection? in
            state.presence = .present(owner)
            state.told = Set(report.names.map { NotificationName($0.name) })
            return state.connection
        }
        // Also without registrations: who asked waits for all whom it knows.
        if let connection { send(.report, [.uint64(inquiry), report.value], connection) }
    }

    private func handle(_ event: ConnectionEvent, _ client: NotifyClient?) {
        switch event {
        case .lost:
            client?.authority.forget()
            state.withLock { state in
                state.presence = .unknown
                state.told = []
            }
        case .restored:
            if let client { askWhetherItRuns(client) }
        }
    }
}
