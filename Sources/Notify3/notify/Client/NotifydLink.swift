import DBusTransport
import NotifyCenter
import NotifydProtocol
import Synchronization

/// Tells notifyd which names this process has registered, if notifyd runs; it neither starts notifyd nor waits for it.
///
/// The thread that registers a name first, or cancels its last registration, sends `Enter` or `Leave` itself, and holds ``state`` from
/// the decision until libdbus has the message. So notifyd is told in the order of the decisions, and before the function returns.
/// Nothing waits meanwhile: what the socket does not take at once, the reading thread writes later.
///
/// The client's lock may be taken with this one held, never the other way round.
final class NotifydLink: Sendable {
    private enum Presence {
        /// It is being asked and has not answered, or the bus is lost.
        case unknown
        /// It does not run. When it starts, it sends `Tell` to all.
        case absent
        /// It runs, under this unique name.
        case present(String)
    }

    private struct State {
        var presence = Presence.unknown
        /// Names whose first registration waits for the bus, and how many threads wait. Few at a time. notifyd counts them as registered.
        var registering: [(name: NotificationName, threads: Int)] = []
        /// There from the first registration on.
        var connection: DBusConnection?
        /// Whether the rule and the handlers are in place.
        var isListening = false
        /// Keep them in place.
        var lease: MatchRuleLease?
        var handlers: [Observation] = []

        func isRegistering(_ name: NotificationName) -> Bool { registering.contains { $0.name == name } }

        mutating func beginRegistering(_ name: NotificationName) {
            if let index = registering.firstIndex(where: { $0.name == name }) {
                registering[index].threads += 1
            } else {
                registering.append((name, 1))
            }
        }

        /// - Returns: whether no other thread is registering the name.
        mutating func endRegistering(_ name: NotificationName) -> Bool {
            guard let index = registering.firstIndex(where: { $0.name == name }) else { return true }
            registering[index].threads -= 1
            guard registering[index].threads == 0 else { return false }
            registering.swapAt(index, registering.count - 1)
            registering.removeLast()
            return true
        }

        /// Where to send `Enter` and `Leave`; `nil` while nobody would read them.
        var receiver: DBusConnection? {
            if case .absent = presence { nil } else { connection }
        }
    }

    private let state = Locked(State())
    /// Held by the thread that puts rule and handlers in place. It waits for nobody meanwhile.
    private let starting = Locked(())

    /// Listens to notifyd from the first registration on.
    ///
    /// - Parameter connection: one that has reached the bus, or has lost it.
    func listen(_ connection: DBusConnection, for client: NotifyClient) throws(DBusError) {
        if state.withLock({ $0.isListening }) { return }
        try starting.withLock { _ throws(DBusError) in
            guard !state.withLock({ $0.isListening }) else { return }
            let events = try connection.onEvent { [weak client] event in client?.link.handle(event, client) }
            let signals = connection.onSignal { [weak client] message in
                guard let client else { return }
                if !client.receive(message) { client.link.receive(message, client) }
            }
            state.withLock { $0.connection = connection }
            // Asked when the rule is in force, so that no notifyd starts unheard in between. Where the bus grants no more rules, one that
            // starts later is not heard; one that runs is found all the same.
            let lease = connection.keepMatch(NotifydProtocol.tellRule) { [weak client] _ in
                if let client { client.link.askWhetherItRuns(client) }
            }
            state.withLock { state in
                state.handlers = [events, signals]
                state.lease = lease
                state.isListening = true
            }
        }
    }

    /// The connection, once a name was registered on the bus.
    var connection: DBusConnection? { state.withLock { $0.connection } }

    // MARK: Enter and Leave

    /// Runs what gives a name its first registration: tells notifyd of the name before, and takes that back where the name has no
    /// registration afterwards.
    func entering<Value>(
        _ name: NotificationName,
        for client: NotifyClient,
        _ register: () throws(NotifyStatus) -> Value
    ) throws(NotifyStatus) -> Value {
        state.withLock { state in
            state.beginRegistering(name)
            Self.send(Self.enter, name, state.receiver)
        }
        defer {
            state.withLock { state in
                if state.endRegistering(name), !client.isRegistered(name) {
                    Self.send(Self.leave, name, state.receiver)
                }
            }
        }
        return try register()
    }

    /// Runs what may end the last registration of a name, and tells notifyd of the name that it returns.
    func leaving<Value: Sendable>(
        _ end: () throws(NotifyStatus) -> (value: Value, left: NotificationName?)
    ) throws(NotifyStatus) -> Value {
        try state.withLock { state throws(NotifyStatus) in
            let (value, left) = try end()
            if let left, !state.isRegistering(left) { Self.send(Self.leave, left, state.receiver) }
            return value
        }
    }

    /// Tells notifyd that a name has no registration, if it has none: a call that entered the name there may have come after the last
    /// `Leave`.
    func leaveIfUnregistered(_ name: NotificationName, in client: NotifyClient) {
        state.withLock { state in
            guard !state.isRegistering(name), !client.isRegistered(name) else { return }
            Self.send(Self.leave, name, state.receiver)
        }
    }

    /// Tells notifyd that a path need not be monitored any more.
    func unmonitor(_ token: CInt) {
        state.withLock { state in
            Self.send(.unmonitor, [.int32(token)], state.receiver)
        }
    }

    private static let options: DBusMessage.CallOptions = [.noAutoStart, .noReply]
    private static let enter = NotifydProtocol.template(.enter, options: options)
    private static let leave = NotifydProtocol.template(.leave, options: options)

    private static func send(
        _ template: Result<MessageTemplate, DBusError>,
        _ name: NotificationName,
        _ receiver: DBusConnection?
    ) {
        guard let receiver, let message = try? template.get().filled(with: name.rawValue, isList: true) else { return }
        try? receiver.queue(message)
    }

    /// A failure changes nothing: a notifyd that does not run need not be told, and after an outage of the bus it is told everything.
    private static func send(
        _ method: NotifydProtocol.Method,
        _ arguments: [DBusValue],
        _ receiver: DBusConnection?
    ) {
        guard let receiver,
            let message = try? NotifydProtocol.call(method, arguments, options: options)
        else { return }
        try? receiver.queue(message)
    }

    // MARK: Is it there?

    /// notifyd has answered under this unique name.
    func answered(by owner: String?) {
        if let owner { state.withLock { $0.presence = .present(owner) } }
    }

    /// Asks the bus, without starting notifyd, and reports to it if it runs. What notifyd then sends to this process comes after its
    /// answer, and finds it known.
    private func askWhetherItRuns(_ client: NotifyClient) {
        guard let connection = state.withLock({ $0.connection }),
            let question = try? NotifydProtocol.call(.enter, [.array([], of: "s")], options: .noAutoStart)
        else { return }
        connection.call(question) { [weak client] answer in
            let found = Self.presence(answer)
            let isNews = self.state.withLock { state in
                // What notifyd itself has said meanwhile is newer.
                guard case .unknown = state.presence else { return false }
                state.presence = found
                return true
            }
            guard isNews, case .present(let owner) = found, let client else { return }
            self.report(to: owner, 0, false, client)
        }
    }

    private static func presence(_ answer: Result<[DBusValue], DBusError>) -> Presence {
        switch answer {
        case .success(let values): values.first?.stringValue.map(Presence.present) ?? .unknown
        // A notifyd that is slow to answer is told all the same, and after an outage of the bus it is asked for again.
        case .failure(let error): NotifydProtocol.isAbsent(error) ? .absent : .unknown
        }
    }

    // MARK: Listening, on the reading thread

    private func receive(_ message: borrowing DBusMessage, _ client: NotifyClient) {
        guard message.path == NotifydProtocol.path, message.interface == NotifydProtocol.interface,
            let signal = message.member.flatMap(NotifydProtocol.Signal.init), let sender = message.sender
        else { return }
        // Anybody may send such a signal: the sender and the signature are checked before the body is read.
        if signal == .tell {
            // Sent to all: so it came by the rule, and the bus has checked that its sender has notifyd's name.
            guard !message.isDirected, message.has(signature: "tb"), let arguments = try? message.arguments(),
                let inquiry = arguments[0].unsignedValue, let isDetailed = arguments[1].booleanValue
            else { return }
            return report(to: sender, inquiry, isDetailed, client)
        }
        guard case .present(sender) = state.withLock({ $0.presence }) else { return }
        switch signal {
        case .suspend where message.has(signature: ""): client.suspendProcess()
        case .resume where message.has(signature: ""): client.resumeProcess()
        case .changed:
            guard message.has(signature: "i"), case .int32(let token)? = try? message.arguments().first else { return }
            client.fire(token)
        case .suspend, .resume, .tell: break
        }
    }

    /// Also sent without registrations: who asked waits for all whom it knows.
    private func report(to owner: String, _ inquiry: UInt64, _ isDetailed: Bool, _ client: NotifyClient) {
        state.withLock { state in
            state.presence = .present(owner)
            var report = client.withTable { table in
                table.report(of: { NameScope($0.rawValue) != .process }, detailed: isDetailed)
            }
            let reported = Set(report.names.lazy.map { NotificationName($0.name) })
            for (name, _) in state.registering where !reported.contains(name) {
                report.names.append(NameReport(name: name.rawValue))
            }
            Self.send(.report, [.uint64(inquiry), report.value], state.receiver)
        }
    }

    private func handle(_ event: ConnectionEvent, _ client: NotifyClient?) {
        switch event {
        case .lost:
            client?.authority.forget()
            state.withLock { $0.presence = .unknown }
        case .restored:
            if let client { askWhetherItRuns(client) }
        }
    }
}
