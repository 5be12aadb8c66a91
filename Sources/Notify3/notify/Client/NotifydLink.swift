import Basics
import DBus
import NotifyCenter
import Synchronization

/// Tells notifyd which names this process has registered, if notifyd runs. Neither starts notifyd nor waits for it.
///
/// The thread that registers a name first, or cancels its last registration, sends `Enter` or `Leave` itself. It holds
/// ``state`` from the decision until libdbus has the message. So notifyd receives the messages in the order of the
/// decisions, and they are sent before the function returns. The thread never waits for the socket: the reading thread
/// writes later what the socket does not take at once.
///
/// Lock order: the client's lock may be taken while this one is held, never the other way round.
final class NotifydLink: Sendable {
    /// A name whose first registration waits for the bus. For notifyd, the name is registered already.
    private struct Registering {
        let name: NotificationName
        /// How many threads register the name.
        var threads = 1
        var kept: StateReport?
    }

    private struct State {
        var presence = NotifydPresence()
        /// An array, because there are usually few.
        var registering: [Registering] = []
        /// `nil` until the first registration.
        var connection: DBusConnection?
        /// Whether the match rule and the handlers are installed.
        var isListening = false
        /// Their release removes the rule and the handlers.
        var lease: MatchRuleLease?
        var handlers: [Observation] = []

        func isRegistering(_ name: NotificationName) -> Bool { registering.contains { $0.name == name } }

        mutating func beginRegistering(_ name: NotificationName) {
            if let index = registering.firstIndex(where: { $0.name == name }) {
                registering[index].threads += 1
            } else {
                registering.append(Registering(name: name))
            }
        }

        /// - Returns: `nil` while another thread is registering the name.
        mutating func endRegistering(_ name: NotificationName) -> Registering? {
            guard let index = registering.firstIndex(where: { $0.name == name }) else { return Registering(name: name) }
            registering[index].threads -= 1
            guard registering[index].threads == 0 else { return nil }
            registering.swapAt(index, registering.count - 1)
            return registering.removeLast()
        }

        /// Remembers a state if the name is being registered.
        mutating func keep(_ state: StateReport, of name: NotificationName) {
            guard let index = registering.firstIndex(where: { $0.name == name }) else { return }
            registering[index].kept = state
        }

        /// The connection for `Enter` and `Leave`; `nil` if notifyd does not run, or before the first registration.
        var receiver: DBusConnection? {
            if presence.value == .absent { nil } else { connection }
        }
    }

    private let state = PosixLocked(State())
    /// Held by the thread that installs rule and handlers. It waits for no other thread while it holds the lock.
    private let starting = Locked(())

    /// Listens to notifyd from the first registration on.
    ///
    /// - Parameter connection: A connection that has reached the bus, or has lost it.
    func listen(_ connection: DBusConnection, for client: NotifyClient) throws(DBusError) {
        if state.withLock({ $0.isListening }) { return }
        try starting.withLock { _ throws(DBusError) in
            guard !state.withLock({ $0.isListening }) else { return }
            // If a later bus refuses the rule of an existing registration, there is no caller to throw to.
            try NotifyClient.center.observeConnection()
            let events = try connection.onEvent { [weak client] event in client?.link.handle(event, client) }
            let signals = connection.onSignal { [weak client] message in
                guard let client else { return }
                if !client.receive(message) { client.link.receive(message, client) }
            }
            state.withLock { $0.connection = connection }
            // Asks for the owner after the rule is in force, so that no start is missed. If the bus refuses the rule,
            // this process finds a running notifyd but does not notice a later start.
            let lease = connection.keepMatch(NotifydProtocol.ownerRule) { [weak client] _ in
                if let client { client.link.askWhoItIs(client) }
            }
            state.withLock { state in
                state.handlers = [events, signals]
                state.lease = lease
                state.isListening = true
            }
        }
    }

    /// The connection; `nil` until a name was registered on the bus, and the rule and the handlers are installed.
    var connection: DBusConnection? { state.withLock { $0.isListening ? $0.connection : nil } }

    // MARK: Enter and Leave

    /// Runs `register`, which gives a name its first registration. Tells notifyd of the name first, and takes that back
    /// if the name has no registration afterwards.
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
                guard let ended = state.endRegistering(name) else { return }
                if !client.isRegistered(name) {
                    Self.send(Self.leave, name, state.receiver)
                } else if let kept = ended.kept {
                    client.withTable { $0.setState(kept, of: name) }
                }
            }
        }
        return try register()
    }

    /// Runs `end`, which may end the last registration of a name. If it returns a name, tells notifyd that the name has
    /// no registrations.
    func leaving<Value: Sendable>(
        _ end: () throws(NotifyStatus) -> (value: Value, left: NotificationName?)
    ) throws(NotifyStatus) -> Value {
        try state.withLock { state throws(NotifyStatus) in
            let (value, left) = try end()
            if let left, !state.isRegistering(left) { Self.send(Self.leave, left, state.receiver) }
            return value
        }
    }

    /// Sends `Leave` for a name without registrations. A call that entered the name at notifyd may have arrived after
    /// the last `Leave`.
    func leaveIfUnregistered(_ name: NotificationName, in client: NotifyClient) {
        state.withLock { state in
            guard !state.isRegistering(name), !client.isRegistered(name) else { return }
            Self.send(Self.leave, name, state.receiver)
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

    // MARK: Finding notifyd

    /// Returns whether a sender is notifyd. Any process can send notifyd's messages.
    func isNotifyd(_ sender: String?) -> Bool {
        guard case .present(let owner) = state.withLock({ $0.presence.value }) else { return false }
        return owner == sender
    }

    /// Asks for notifyd's unique name if it is unknown. A registration of a reserved name needs it, because only
    /// notifyd's posts count. Does not wait: the response arrives before anything that the bus sends later. The rule
    /// that tells of changes is requested already.
    func findOwner(_ connection: DBusConnection, _ client: NotifyClient) throws(DBusError) {
        let presence = state.withLock { $0.presence }
        guard presence.value == .unknown else { return }
        connection.call(try NotifydProtocol.ownerQuestion()) { [weak client] answer in
            // A failure means "absent" only once the rule that tells of a later start is in force.
            if let client, case .success = answer { self.found(answer, answering: presence.question, client) }
        }
    }

    /// Asks the bus for notifyd's unique name, and queues for a bus name whose queue lists the processes with
    /// registrations.
    private func askWhoItIs(_ client: NotifyClient) {
        guard let connection = state.withLock({ $0.connection }), let question = try? NotifydProtocol.ownerQuestion(),
            let queueing = try? NotifydProtocol.busCall(
                "RequestName",
                [.string(NotifydProtocol.clientsBusName), .uint32(0)]
            )
        else { return }
        let number = state.withLock { $0.presence.question }
        connection.call(question) { [weak client] answer in
            if let client { self.found(answer, answering: number, client) }
        }
        // If the bus's policy forbids this, a starting notifyd does not wait for this process's report, but accepts it
        // when it arrives.
        connection.call(queueing) { _ in }
    }

    private func found(_ answer: Result<[DBusValue], DBusError>, answering question: UInt64, _ client: NotifyClient) {
        let found: NotifydPresence.Value
        switch answer {
        case .success(let values): found = values.first?.stringValue.map(NotifydPresence.Value.present) ?? .unknown
        case .failure(let error): found = error.code == .refused ? .absent : .unknown
        }
        if case .present(let owner) = found { connection?.expectSignals(from: owner) }
        let isNews = state.withLock { $0.presence.learn(found, answering: question) }
        if isNews, case .present = found { report(0, isDetailed: false, client) }
    }

    // MARK: Signals, on the reading thread

    private func receive(_ message: borrowing DBusMessage, _ client: NotifyClient) {
        if let change = message.ownerChange() {
            if change.name == NotifydProtocol.busName { ownerChanged(change.owner, client) }
            return
        }
        guard message.interface == NotifydProtocol.interface,
            let signal = message.member.flatMap(NotifydProtocol.Signal.init), isNotifyd(message.sender),
            message.has(path: NotifydProtocol.path)
        else { return }
        switch signal {
        case .suspend where message.has(signature: ""): client.suspendProcess()
        case .resume where message.has(signature: ""): client.resumeProcess()
        case .tell where message.has(signature: "t"):
            if case .unsigned(let round)? = message.reader.number { report(round, isDetailed: true, client) }
        case .keep where message.has(signature: "a(stt)"):
            var arguments = ArgumentReader(message.reader)
            keep((try? [NameReport](keptStates: &arguments)) ?? [], client)
        case .suspend, .resume, .tell, .keep: break
        }
    }

    private func keep(_ reports: [NameReport], _ client: NotifyClient) {
        state.withLock { state in
            for report in reports {
                guard let kept = report.state else { continue }
                let name = NotificationName(report.name)
                state.keep(kept, of: name)
                client.withTable { $0.setState(kept, of: name) }
            }
        }
    }

    private func ownerChanged(_ owner: String, _ client: NotifyClient) {
        // notifyd may tell this process to keep the states of many names.
        if !owner.isEmpty { connection?.expectSignals(from: owner) }
        state.withLock { $0.presence.learn(owner.isEmpty ? .absent : .present(owner)) }
        if !owner.isEmpty { report(0, isDetailed: false, client) }
    }

    /// Also sent without registrations, because notifyd waits for each process that may have some.
    private func report(_ round: UInt64, isDetailed: Bool, _ client: NotifyClient) {
        state.withLock { state in
            var report = client.withTable { table in
                table.report(of: { NameScope($0.rawValue) != .process }, detailed: isDetailed)
            }
            let reported = Set(report.names.lazy.map { NotificationName($0.name) })
            for name in state.registering where !reported.contains(name.name) {
                report.names.append(NameReport(name: name.name.rawValue, state: name.kept))
            }
            guard let receiver = state.receiver,
                let message = try? NotifydProtocol.call(
                    .report,
                    [.uint64(round)] + report.values,
                    options: Self.options
                )
            else { return }
            // A failure does no harm: after an outage of the bus, notifyd gets a full report.
            try? receiver.queue(message)
        }
    }

    private func handle(_ event: ConnectionEvent, _ client: NotifyClient?) {
        switch event {
        case .lost: state.withLock { $0.presence.learn(.unknown) }
        case .restored: if let client { askWhoItIs(client) }
        }
    }
}

/// notifyd's presence, as far as this process knows. Pure: it takes the bus's responses and reports.
struct NotifydPresence {
    enum Value: Equatable {
        /// The bus has not responded yet, or is lost.
        case unknown
        /// notifyd does not run. The bus reports its start.
        case absent
        /// notifyd runs, under this unique name.
        case present(String)
    }

    private(set) var value = Value.unknown
    /// Increases with each ``learn(_:)``. A response counts only if the number is still that of its request.
    private(set) var question: UInt64 = 0

    /// Takes a change that the bus has reported; `unknown` if the bus is lost.
    mutating func learn(_ value: Value) {
        self.value = value
        question += 1
    }

    /// Takes the bus's response to a request. The response does not count if the bus has reported a change since the
    /// request, or was lost since: the unique names of another bus have other owners.
    ///
    /// - Returns: Whether the response counts.
    mutating func learn(_ value: Value, answering question: UInt64) -> Bool {
        guard self.value == .unknown, question == self.question else { return false }
        learn(value)
        return true
    }
}
