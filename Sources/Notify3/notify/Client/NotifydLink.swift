import DBusTransport
import Dispatch
import NotifyCenter
import NotifydProtocol
import Synchronization

/// Keeps notifyd informed of the names that this process has registered, if notifyd runs; nothing here starts it or waits for its
/// answer.
///
/// What changes is noted under the client's lock, so in its true order, and sent from the reading thread, which answers notifyd's
/// questions too: so what notifyd hears has one order. ``settle()`` has all that was noted before on its way; registering,
/// cancelling, and all calls of notifyd do that, so that a name's state dies with its last registration and not some time later.
final class NotifydLink: Sendable {
    private enum Presence {
        /// It is being asked, has not answered, or the bus was lost.
        case unknown
        /// It does not run; it says so itself when it starts.
        case absent
        /// It runs, under this unique name.
        case present(String)
    }

    private struct State {
        var presence = Presence.unknown
        var changes = NameChanges()
        /// Whether the reading thread has taken changes, and not sent all of them.
        var isTelling = false
        /// How many registrations were noted after their announcement was undone, and how many of them the bus has passed on for sure.
        var notedAnew: UInt64 = 0
        var passedOn: UInt64 = 0
        /// Rises with whatever may undo an announcement.
        var generation: UInt64 = 0
        var connection: DBusConnection?
        /// Keep the rule and the handlers in place.
        var lease: MatchRuleLease?
        var handlers: [Observation] = []

        /// Whether telling is of use.
        var isHeard: Bool { if case .absent = presence { false } else { connection != nil } }
    }

    private let state = Locked(State())
    /// Held while the bus answers; never by the reading thread.
    private let beginning = Locked(())

    /// Has notifyd heard, with the first registration; the second thread that comes waits for the first.
    func begin(_ client: NotifyClient) {
        if state.withLock({ $0.connection != nil }) { return }
        beginning.withLock { _ in
            // A bus that fails here fails the registration next, which begins anew the next time.
            guard state.withLock({ $0.connection == nil }), let connection = try? NotifyClient.connection(),
                let events = try? connection.onEvent({ [weak client] event in client?.link.handle(event, client) })
            else { return }
            let signals = connection.onSignal { [weak client] message in client?.link.receive(message, client) }
            // Where the bus grants no more rules, a notifyd that starts later is not heard; one that runs is told all the same.
            let lease = try? connection.addMatch(NotifydProtocol.tellRule)
            state.withLock { state in
                state.connection = connection
                state.handlers = [events, signals]
                state.lease = lease
            }
            askWhetherItRuns(client)
        }
    }

    // MARK: Telling

    /// Tells of a name that is about to be registered: before the bus is asked to send its posts, so that its answer says that
    /// notifyd hears of this name before of whatever happens next in any process.
    ///
    /// - Returns: for ``confirm(_:since:)``.
    func announce(_ name: NotificationName) -> UInt64 {
        let generation = state.withLock { state in
            if state.isHeard { state.changes.came(name) }
            return state.generation
        }
        settle()
        return generation
    }

    /// The name is registered. With the client's lock held; ``settleRegistration()`` follows.
    func confirm(_ name: NotificationName, since generation: UInt64) {
        state.withLock { state in
            guard state.isHeard, state.generation != generation else { return }
            state.changes.came(name)
            state.notedAnew += 1
        }
    }

    /// The name has no registrations any more. With the client's lock held; ``settle()`` follows.
    func left(_ name: NotificationName) {
        state.withLock { state in
            state.generation += 1
            if state.isHeard { state.changes.went(name) }
        }
    }

    /// Waits until what was noted is sent. Costs nothing where nothing is.
    func settle() {
        let connection = state.withLock { $0.changes.isEmpty && !$0.isTelling ? nil : $0.connection }
        guard let connection else { return }
        if connection.isOnReadingThread { return sendChanges(connection) }
        let sent = DispatchSemaphore(value: 0)
        connection.perform {
            self.sendChanges(connection)
            sent.signal()
        }
        sent.wait()
    }

    /// Waits until notifyd hears of a registration before of whatever happens next in any process. Costs a question to the bus where something
    /// has undone its announcement.
    func settleRegistration() {
        settle()
        let (noted, connection) = state.withLock { state in
            (state.notedAnew, state.notedAnew > state.passedOn ? state.connection : nil)
        }
        guard let connection else { return }
        // A bus that is lost has nothing to pass on.
        try? connection.flush()
        state.withLock { $0.passedOn = max($0.passedOn, noted) }
    }

    /// On the reading thread.
    private func sendChanges(_ connection: DBusConnection) {
        let tellings = state.withLock { state in
            state.isTelling = true
            return state.changes.take()
        }
        defer { state.withLock { $0.isTelling = false } }
        for telling in tellings {
            switch telling {
            case .enter(let name): send(.enter, [.array([.string(name.rawValue)], of: "s")], connection)
            case .leave(let name): send(.leave, [.array([.string(name.rawValue)], of: "s")], connection)
            }
        }
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

    /// A notifyd that does not run needs to be told nothing, and a bus that is lost is reported as such.
    private func send(_ method: NotifydProtocol.Method, _ arguments: [DBusValue], _ connection: DBusConnection) {
        guard let message = try? NotifydProtocol.call(method, arguments, options: [.noAutoStart, .noReply]) else {
            return
        }
        try? connection.send(message)
    }

    /// Asks the bus once, without starting it, and tells it all if it runs. What it then sends to this process comes after its answer, and
    /// finds it known.
    private func askWhetherItRuns(_ client: NotifyClient) {
        guard let connection = state.withLock({ $0.connection }),
            let question = try? NotifydProtocol.call(.enter, [.array([], of: "s")], options: .noAutoStart)
        else { return }
        connection.call(question) { [weak client] answer in
            let found = Self.presence(answer)
            let isNews = self.state.withLock { state in
                // What it has said itself meanwhile is newer.
                guard case .unknown = state.presence else { return false }
                state.presence = found
                return true
            }
            guard isNews, case .present(let owner) = found, let client else { return }
            self.report(to: owner, 0, false, client)
        }
    }

    /// Whether notifyd runs, by its answer.
    private static func presence(_ answer: Result<[DBusValue], DBusError>) -> Presence {
        switch answer {
        case .success(let values): values.first?.stringValue.map(Presence.present) ?? .unknown
        // Only the bus knows that it does not run. One that is slow to answer is told all the same, and a bus that is lost is asked again
        // when it is back.
        case .failure(let error): absenceErrors.contains(error.name ?? "") ? .absent : .unknown
        }
    }

    private static let absenceErrors = [
        "org.freedesktop.DBus.Error.NameHasNoOwner",
        "org.freedesktop.DBus.Error.ServiceUnknown",
        // It ended before it answered.
        "org.freedesktop.DBus.Error.NoReply",
    ]

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
        let (report, connection) = client.withTable { table -> (ProcessReport, DBusConnection?) in
            // With the client's lock held: what was noted so far is in the report, and what comes follows it.
            let connection = self.state.withLock { state -> DBusConnection? in
                state.presence = .present(owner)
                state.generation += 1
                state.isTelling = true
                _ = state.changes.take()
                return state.connection
            }
            return (table.report(of: { NameScope($0.rawValue) != .process }, detailed: isDetailed), connection)
        }
        // Also without registrations: who asked waits for all whom it knows.
        defer { state.withLock { $0.isTelling = false } }
        if let connection { send(.report, [.uint64(inquiry), report.value], connection) }
    }

    private func handle(_ event: ConnectionEvent, _ client: NotifyClient?) {
        switch event {
        case .lost:
            client?.authority.forget()
            state.withLock { state in
                state.presence = .unknown
                _ = state.changes.take()
            }
        case .restored:
            if let client { askWhetherItRuns(client) }
        }
    }
}
