import Synchronization

/// How many bytes of a service's messages its callers have not read, as far as the service knows. Pure.
///
/// A bus keeps what a connection does not read, and dbus-daemon reads nothing more from a service, for anybody, while it keeps 127 MB of
/// that service's messages. So the service asks a connection from time to time whether it reads (`Ping`), and answers nothing more where that
/// stays open and too much is unread. No time limit is involved: a process that is stopped has as much room as any other.
package struct UnreadAnswers {
    /// Room for messages that nobody is known to have read, in bytes.
    package struct Room: Sendable, Hashable {
        /// For one connection.
        package var connection: Int
        /// For all connections of its user.
        package var user: Int

        package init(connection: Int, user: Int) {
            self.connection = connection
            self.user = user
        }

        /// For one connection whose user nobody has asked about. A bus has 2048 connections.
        package static let ofStrangers = Room(connection: 32 << 10, user: .max)
    }

    /// What may be sent to a connection.
    package enum Standing: Sendable { case anything, refusals, nothing }

    private struct Use {
        var user: UInt32?
        var bytes = 0
        /// The question under way, with the bytes that were sent before it, and whom it counts for; `nil` while there is none.
        var asked: (bytes: Int, user: UInt32?)?
        /// Calls that were dropped since it last read.
        var dropped = 0
    }

    /// A connection is asked after so many bytes; and earlier where its user has so much unread that all its connections are asked.
    static let questionAfter = 16 << 10
    private static let earlyQuestion = (after: 1 << 10, ofUser: 1 << 20)
    /// A bus lets a service wait for 128 answers at a time, and a connection that does not read never answers. So one user gets 16 questions, the
    /// users with several 96 together, and the rest is for the first question of each user.
    private static let mostQuestions = (ofUser: 16, ofUsersWithSeveral: 96, all: 124)

    /// Connections that have something unread.
    private var uses: [String: Use] = [:]
    private var users: [UInt32: Int] = [:]
    /// The questions under way, of all and of each user.
    private var questions = (all: 0, users: [UInt32?: Int]())
    /// Connections that are to be asked when there is room for a question.
    private var unasked: Set<String> = []

    /// Those that have something unread.
    var connections: some Sequence<String> { uses.keys }

    /// - Parameter user: `nil` for one whose user nobody has asked about.
    func standing(of connection: String, _ user: UInt32?, _ room: Room) -> Standing {
        let (own, all) = (uses[connection]?.bytes ?? 0, user.flatMap { users[$0] } ?? 0)
        if own < room.connection, all < room.user { return .anything }
        // An eighth more for the refusals, which say why.
        if own - own / 8 < room.connection, all - all / 8 < room.user { return .refusals }
        return .nothing
    }

    /// So many bytes are on their way to a connection. Returns whether to ask it if it reads.
    ///
    /// - Parameter isLate: the connection may be gone: it is asked at once, so that nothing is kept of it.
    mutating func sent(_ bytes: Int, to connection: String, _ user: UInt32?, isLate: Bool = false) -> Bool {
        var use = uses[connection] ?? Use()
        if use.user == nil, let user {
            use.user = user
            users[user, default: 0] += use.bytes
        }
        use.bytes += bytes
        if let user = use.user { users[user, default: 0] += bytes }
        uses[connection] = use
        return ask(connection, isLate: isLate)
    }

    private mutating func ask(_ connection: String, isLate: Bool = false) -> Bool {
        guard let use = uses[connection], use.asked == nil else { return false }
        let all = use.user.flatMap { users[$0] } ?? 0
        let after = all < Self.earlyQuestion.ofUser ? Self.questionAfter : Self.earlyQuestion.after
        guard isLate || use.bytes >= after else { return false }
        let own = questions.users[use.user] ?? 0
        let most = own == 0 ? Self.mostQuestions.all : Self.mostQuestions.ofUsersWithSeveral
        guard own < Self.mostQuestions.ofUser, questions.all < most else {
            unasked.insert(connection)
            return false
        }
        uses[connection]?.asked = (use.bytes, use.user)
        questions.all += 1
        questions.users[use.user, default: 0] += 1
        return true
    }

    /// Returns what the connection was asked about.
    private mutating func endQuestion(_ connection: String) -> Int? {
        guard let asked = uses[connection]?.asked else { return nil }
        uses[connection]?.asked = nil
        questions.all -= 1
        let others = (questions.users[asked.user] ?? 0) - 1
        questions.users[asked.user] = others > 0 ? others : nil
        return asked.bytes
    }

    /// Connections that were not asked for want of room, and are to be asked now that a question has ended.
    mutating func overdue() -> [String] {
        guard !unasked.isEmpty else { return [] }
        let waiting = unasked
        unasked = []
        // Who finds no room waits again.
        return waiting.filter { ask($0, isLate: true) }
    }

    /// A connection has read all that was sent before the question. Returns whether to ask again.
    mutating func read(_ connection: String) -> Bool {
        guard let read = endQuestion(connection), let use = uses[connection] else { return false }
        release(read, of: use.user)
        guard use.bytes > read else {
            uses[connection] = nil
            return false
        }
        uses[connection]?.bytes -= read
        uses[connection]?.dropped = 0
        return ask(connection)
    }

    /// A call of a connection that has too much unread was dropped. Returns whether to ask the connection: after a question that failed, nothing is
    /// sent to it that would lead to the next one. After 1, 2, 4, 8 … calls, so that a flood of them is not answered by a flood of questions.
    mutating func dropped(_ connection: String) -> Bool {
        guard let before = uses[connection]?.dropped else { return false }
        uses[connection]?.dropped = before + 1
        return before & (before + 1) == 0 && ask(connection, isLate: true)
    }

    /// The question has failed, and says nothing.
    mutating func failedToAsk(_ connection: String) { _ = endQuestion(connection) }

    /// A connection is gone, and the bus keeps nothing for it.
    mutating func gone(_ connection: String) {
        _ = endQuestion(connection)
        unasked.remove(connection)
        guard let use = uses.removeValue(forKey: connection) else { return }
        release(use.bytes, of: use.user)
    }

    private mutating func release(_ bytes: Int, of user: UInt32?) {
        guard let user, let all = users[user] else { return }
        users[user] = all > bytes ? all - bytes : nil
    }
}

/// When a service asks its bus whether it still reads. What a service sends to all, it cannot count: it does not know who hears it. So somebody may
/// leave 127 MB of that unread, and dbus-daemon reads nothing more of the service. Pure; its clock stands still while the machine sleeps.
struct BusQuestions {
    /// The shortest time between two questions. As long as nothing is sent, nothing is asked.
    static let pause = Duration.seconds(1)
    /// How long an answer may take.
    static let patience = Duration.seconds(10)

    enum Step {
        /// When to look again; `nil` for after the next event.
        case wait(Duration?)
        case ask
        /// There is no answer. Where the bus takes a new connection, it holds up this one.
        case probe
    }

    private var hasSent = false
    private var askedAt: SuspendingClock.Instant?
    private var isOpen = false
    private var lateSince: SuspendingClock.Instant?
    /// What the bus had not read when it was last looked at, in bytes.
    private var unread: Int?
    private let patience: Duration
    /// When to look once more: the service itself may have stood still, and the answer may have come meanwhile.
    private var secondLook: Duration { patience / 5 }
    /// Whether the question under way is late, and the bus is tried because of it.
    private(set) var isProbing = false

    init(patience: Duration = Self.patience) { self.patience = patience }

    /// The service has sent something. Returns whether it is the first thing since the last question.
    mutating func sent() -> Bool {
        defer { hasSent = true }
        return !hasSent
    }

    /// - Parameter unread: about how many bytes the bus has not read, as the kernel says; `nil` where it does not say. Asked when the answer is late. A bus that reads is not held up,
    ///   however late its answer: that may be behind many messages of other senders.
    mutating func next(now: SuspendingClock.Instant, unread: @autoclosure () -> Int?) -> Step {
        guard isOpen, let askedAt else {
            guard hasSent else { return .wait(nil) }
            if let askedAt, now - askedAt < Self.pause { return .wait(Self.pause - (now - askedAt)) }
            (hasSent, isOpen, lateSince, self.unread) = (false, true, nil, nil)
            self.askedAt = now
            return .ask
        }
        guard !isProbing else { return .wait(nil) }
        guard now - askedAt >= patience else { return .wait(patience - (now - askedAt)) }
        let unread = unread()
        if let unread, unread < self.unread ?? 1 {
            (self.askedAt, lateSince, self.unread) = (now, nil, nil)
            return .wait(patience)
        }
        self.unread = unread
        guard let lateSince else {
            self.lateSince = now
            return .wait(secondLook)
        }
        guard now - lateSince >= secondLook else { return .wait(secondLook - (now - lateSince)) }
        isProbing = true
        return .probe
    }

    /// Also during a probe, which then has no effect.
    mutating func answered() { (isOpen, isProbing) = (false, false) }

    /// The bus has taken no new connection either: it stands still, and is looked at again later.
    mutating func probedInVain(now: SuspendingClock.Instant) { (isProbing, lateSince) = (false, now) }
}

/// Keeps callers that do not read from stopping a service on its bus: counts what is sent to each (``UnreadAnswers``), and asks each whether it
/// reads. For a ``CallScheduler``, which decides by ``standing(of:_:_:)``. Any thread may use it.
package final class UnreadAnswerGuard: Sendable {
    /// What a caller is told that has room for refusals alone.
    package static let remedy =
        "too many answers to this connection or its user are unread; read them, and answer org.freedesktop.DBus.Peer.Ping"

    private weak let connection: DBusConnection?
    private let unread = Locked(UnreadAnswers())
    private let bus: Locked<BusQuestions>
    private let busPatience: Duration

    /// How long the bus may take to answer.
    package static let busPatience = BusQuestions.patience

    /// - Parameters:
    ///   - connection: the service's own, by which it asks. It is not kept alive.
    ///   - busPatience: how long the bus may take to answer.
    package init(_ connection: DBusConnection, busPatience: Duration = UnreadAnswerGuard.busPatience) {
        self.connection = connection
        self.busPatience = busPatience
        bus = Locked(BusQuestions(patience: busPatience))
    }

    /// Those that have something unread.
    package var connections: [String] { unread.withLock { Array($0.connections) } }

    /// What may be sent to a connection now.
    ///
    /// - Parameter user: `nil` for one whose user nobody has asked about.
    package func standing(of connection: String, _ user: UInt32?, _ room: UnreadAnswers.Room) -> UnreadAnswers.Standing
    {
        unread.withLock { $0.standing(of: connection, user, room) }
    }

    /// So many bytes are on their way to a connection.
    ///
    /// - Parameter isLate: the connection may be gone: it is asked at once, so that nothing is kept of it.
    package func sent(_ bytes: Int, to connection: String, _ user: UInt32?, isLate: Bool = false) {
        if unread.withLock({ $0.sent(bytes, to: connection, user, isLate: isLate) }) { ask(connection) }
        sentToAll()
    }

    /// A call of a connection that has too much unread was dropped.
    package func dropped(_ connection: String) {
        if unread.withLock({ $0.dropped(connection) }) { ask(connection) }
    }

    /// A connection is gone, and the bus keeps nothing for it.
    package func gone(_ connection: String) { unread.withLock { $0.gone(connection) } }

    /// The bus is gone, and all connections with it.
    package func forgetAll() {
        unread.withLock { $0 = UnreadAnswers() }
        bus.withLock { $0 = BusQuestions(patience: busPatience) }
    }

    /// Something was sent to nobody in particular.
    package func sentToAll() {
        // The reading thread asks the bus before it sleeps.
        if bus.withLock({ $0.sent() }), let connection, !connection.isOnReadingThread { connection.perform {} }
    }

    /// Asks the bus for a sign of life, at most once a second and only where something was sent. Where the bus gives none for ten seconds, and takes a
    /// new connection, the service leaves it and comes back by another one, of which the bus holds nothing. For ``CallScheduler/carryOut()``;
    /// called on the reading thread.
    ///
    /// - Parameter leaves: is told why, before ``ConnectionEvent/lost``; called on the reading thread.
    /// - Returns: when to call this again.
    package func askBus(leaves: @escaping @Sendable (String) -> Void) -> ContinuousClock.Instant? {
        switch bus.withLock({ [connection] bus in bus.next(now: .now, unread: connection?.unreadBytes) }) {
        case .wait(let time): return time.map { .now + $0 }
        case .ask:
            guard let connection, let question = try? DBusMessage.busCall("GetId") else {
                bus.withLock { $0.answered() }
                return nil
            }
            connection.call(question, timeout: nil) { [weak self] _ in self?.bus.withLock { $0.answered() } }
            return .now + busPatience
        case .probe:
            connection?.probeBus { [weak self] isServed in
                guard let self, let connection = self.connection, bus.withLock({ $0.isProbing }) else { return }
                guard isServed else { return bus.withLock { $0.probedInVain(now: .now) } }
                let seconds = busPatience.components.seconds
                leaves("the bus has read nothing for \(seconds) s: somebody does not read what is sent to all")
                connection.leaveBus()
            }
            return nil
        }
    }

    /// Asks a connection for a sign of life, which comes when it has read what was sent before. No time limit: the bus answers for those that
    /// are gone.
    private func ask(_ name: String) {
        let ping = try? DBusMessage.methodCall(
            destination: name,
            path: "/",
            interface: "org.freedesktop.DBus.Peer",
            member: "Ping"
        )
        // Only memory can fail here, and there is no connection only at the service's end.
        guard let ping, let connection else { return unread.withLock { $0.failedToAsk(name) } }
        connection.call(ping, timeout: nil, largestAnswer: 0) { [weak self] answer in self?.answered(name, answer) }
    }

    private func answered(_ name: String, _ answer: Result<[DBusValue], DBusError>) {
        let toAsk = unread.withLock { unread -> [String] in
            var toAsk: [String] = []
            if case .failure(let error) = answer {
                switch error.name {
                case "org.freedesktop.DBus.Error.NameHasNoOwner", "org.freedesktop.DBus.Error.ServiceUnknown":
                    unread.gone(name)
                    return unread.overdue()
                // The bus sent this error, or nobody did. It does not tell whether the connection reads: a policy may deny the question.
                case nil, "org.freedesktop.DBus.Error.NoReply", "org.freedesktop.DBus.Error.Timeout",
                    "org.freedesktop.DBus.Error.LimitsExceeded", "org.freedesktop.DBus.Error.AccessDenied":
                    unread.failedToAsk(name)
                    return unread.overdue()
                // The connection itself sent any other error, so it has read the question.
                default: break
                }
            }
            if unread.read(name) { toAsk.append(name) }
            return toAsk + unread.overdue()
        }
        for name in toAsk { ask(name) }
    }
}
