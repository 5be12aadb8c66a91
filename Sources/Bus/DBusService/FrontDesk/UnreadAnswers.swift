import Basics
public import DBus
import Synchronization

/// The number of bytes that callers have not read of a service's messages, as far as the service knows. Pure.
///
/// A bus keeps what a connection does not read. While dbus-daemon keeps 127 MB of a service's messages, it reads
/// nothing more from that service, which then serves no caller at all. So the service sends each connection a `Ping`
/// from time to time. It stops responding to a connection while the ping is open and too much is unread. No time limit
/// is involved: a stopped process has as much room as any other.
public struct UnreadAnswers {
    /// The limits on unread messages, in bytes.
    public struct Room: Sendable, Hashable {
        /// The limit for one connection.
        public var connection: Int
        /// The limit for all connections of its user.
        public var user: Int

        public init(connection: Int, user: Int) { (self.connection, self.user) = (connection, user) }

        /// The limit for a connection whose user has not been looked up. A bus has at most 2048 connections, so all of
        /// them together leave at most 64 MiB unread.
        public static let ofStrangers = Room(connection: 32 << 10, user: .max)
    }

    public enum Standing: Sendable { case anything, refusals, nothing }

    private struct Use {
        var user: UInt32?
        var bytes = 0
        /// The open ping: the number of bytes sent before it, and the user whom it counts for; `nil` if none is open.
        var asked: (bytes: Int, user: UInt32?)?
        /// The number of dropped calls since the connection last read.
        var dropped = 0
    }

    /// A connection is pinged after this many bytes; earlier if its user has much unread.
    static let questionAfter = 16 << 10
    private static let earlyQuestion = (after: 1 << 10, ofUser: 1 << 20)
    /// A bus allows a service 128 pending calls, and a connection that does not read never responds. So one user gets
    /// 16 open pings at most, and a second one only while fewer than 96 are open: the rest is for the first ping of
    /// each user.
    private static let mostQuestions = (ofUser: 16, ofUsersWithSeveral: 96, all: 124)

    /// Connections with unread bytes.
    private var uses: [String: Use] = [:]
    private var users: [UInt32: Int] = [:]
    /// The open pings, in total and for each user.
    private var questions = (all: 0, users: [UInt32?: Int]())
    /// Connections that are pinged once there is room for a ping.
    private var unasked: Set<String> = []

    var connections: some Sequence<String> { uses.keys }

    /// - Parameter user: `nil` if the user has not been looked up.
    func standing(of connection: String, _ user: UInt32?, _ room: Room) -> Standing {
        let (own, all) = (uses[connection]?.bytes ?? 0, user.flatMap { users[$0] } ?? 0)
        if own < room.connection, all < room.user { return .anything }
        // A seventh more for refusals, which tell the caller why.
        if own - own / 8 < room.connection, all - all / 8 < room.user { return .refusals }
        return .nothing
    }

    /// Counts bytes that are on their way to a connection. Returns whether to ping it, at once if it may be gone
    /// (`isLate`): so no entry stays for it.
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

    /// Returns the bytes that were sent before the ping.
    private mutating func endQuestion(_ connection: String) -> Int? {
        guard let asked = uses[connection]?.asked else { return nil }
        uses[connection]?.asked = nil
        questions.all -= 1
        let others = (questions.users[asked.user] ?? 0) - 1
        questions.users[asked.user] = others > 0 ? others : nil
        return asked.bytes
    }

    /// Connections whose ping was put off, and for which there is room now.
    mutating func overdue() -> [String] {
        guard !unasked.isEmpty else { return [] }
        let waiting = unasked
        unasked = []
        // `ask` puts a connection back into `unasked` if there is no room.
        return waiting.filter { ask($0, isLate: true) }
    }

    /// A connection has read all that was sent before the ping. Returns whether to ping again.
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

    /// Counts a dropped call of a connection with too much unread. Returns whether to ping it: after a failed ping
    /// nothing else causes the next one. After 1, 2, 4, 8 … calls, so that a flood of calls is no flood of pings.
    mutating func dropped(_ connection: String) -> Bool {
        guard let before = uses[connection]?.dropped else { return false }
        uses[connection]?.dropped = before + 1
        return before & (before + 1) == 0 && ask(connection, isLate: true)
    }

    /// The ping has failed, and tells nothing about the connection.
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

/// Decides when a service asks its bus whether the bus still reads. Pure. The clock stands still during a sleep.
///
/// A service cannot count what receivers have not read of broadcasts, because it does not know the receivers. With 127
/// MB of them unread, dbus-daemon reads nothing more from the service.
struct BusQuestions {
    /// The shortest time between two requests. Without a message in between there is no second request.
    static let pause = Duration.seconds(1)
    /// How long a response may take.
    static let patience = Duration.seconds(10)

    enum Step {
        /// When to look again; `nil` for after the next event.
        case wait(Duration?)
        case ask
        /// The response is missing: find out whether the bus runs, and so no longer reads this connection.
        case probe
    }

    private var hasSent = false
    private var askedAt: SuspendingClock.Instant?
    private var isOpen = false
    private var lateSince: SuspendingClock.Instant?
    /// The number of bytes that the bus had not read at the last look.
    private var unread: Int?
    private let patience: Duration
    /// The wait before a second look: the service itself may have been stopped.
    private var secondLook: Duration { patience / 5 }
    /// Whether the response is late, and a probe of the bus is in progress.
    private(set) var isProbing = false

    init(patience: Duration = Self.patience) { self.patience = patience }

    /// The service has sent a message. Returns whether it is the first since the last request.
    mutating func sent() -> Bool {
        defer { hasSent = true }
        return !hasSent
    }

    /// Returns the next step. `unread` is about how many bytes the bus has not read; `nil` if unknown. Evaluated when
    /// the response is late: a bus that still reads only has many messages of others before it.
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

    /// The bus has responded. A probe in progress then has no effect.
    mutating func answered() { (isOpen, isProbing) = (false, false) }

    /// The bus has not accepted a new connection either: it is stopped, and is looked at again later.
    mutating func probedInVain(now: SuspendingClock.Instant) { (isProbing, lateSince) = (false, now) }
}

/// Prevents callers that do not read from stopping a service on its bus.
///
/// Counts the unread bytes of each connection (``UnreadAnswers``), and pings the connections. A ``CallScheduler`` uses
/// it, and decides by ``standing(of:_:_:)``. Thread-safe.
public final class UnreadAnswerGuard: Sendable {
    /// The text of a refusal to a caller that has room for refusals only.
    public static let remedy =
        "too many responses to this connection or its user are unread; read them, and respond to org.freedesktop.DBus.Peer.Ping"

    private weak let connection: DBusConnection?
    private let unread = Locked(UnreadAnswers())
    private let bus: Locked<BusQuestions>
    private let busPatience: Duration

    /// How long the bus may take to respond.
    public static let busPatience = BusQuestions.patience

    /// - Parameters:
    ///   - connection: the service's connection, on which it sends the pings. Held weakly.
    ///   - busPatience: how long the bus may take to respond.
    public init(_ connection: DBusConnection, busPatience: Duration = UnreadAnswerGuard.busPatience) {
        self.connection = connection
        self.busPatience = busPatience
        bus = Locked(BusQuestions(patience: busPatience))
    }

    /// Connections with unread bytes.
    public var connections: [String] { unread.withLock { Array($0.connections) } }

    /// The kinds of message that may be sent to a connection now.
    ///
    /// - Parameter user: `nil` if the user has not been looked up.
    public func standing(of connection: String, _ user: UInt32?, _ room: UnreadAnswers.Room) -> UnreadAnswers.Standing {
        unread.withLock { $0.standing(of: connection, user, room) }
    }

    /// Counts bytes that are on their way to a connection, and pings it if needed, at once if it may be gone
    /// (`isLate`).
    public func sent(_ bytes: Int, to connection: String, _ user: UInt32?, isLate: Bool = false) {
        if unread.withLock({ $0.sent(bytes, to: connection, user, isLate: isLate) }) { ask(connection) }
        sentToAll()
    }

    /// Counts a dropped call of a connection with too much unread, and pings it if needed.
    public func dropped(_ connection: String) {
        if unread.withLock({ $0.dropped(connection) }) { ask(connection) }
    }

    /// A connection is gone, and the bus keeps nothing for it.
    public func gone(_ connection: String) { unread.withLock { $0.gone(connection) } }

    /// The bus is gone, and all connections with it.
    public func forgetAll() {
        unread.withLock { $0 = UnreadAnswers() }
        bus.withLock { $0 = BusQuestions(patience: busPatience) }
    }

    /// The service has sent a message, for instance a broadcast.
    public func sentToAll() {
        // The reading thread asks the bus before it sleeps.
        if bus.withLock({ $0.sent() }), let connection, !connection.isOnReadingThread { connection.perform {} }
    }

    /// Asks the bus whether it still reads, at most once a second and only after a message was sent. For
    /// ``CallScheduler/carryOut()``; called on the reading thread.
    ///
    /// If the bus does not respond for ten seconds but accepts a new connection, the service reconnects: the bus holds
    /// no unread messages of the new connection.
    ///
    /// - Parameter leaves: receives the reason before ``ConnectionEvent/lost``; called on the reading thread.
    /// - Returns: when to call this again.
    public func askBus(leaves: @escaping @Sendable (String) -> Void) -> ContinuousClock.Instant? {
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
                leaves("the bus has read nothing for \(seconds) s, because a program does not read the broadcasts")
                connection.leaveBus()
            }
            return nil
        }
    }

    /// Pings a connection, which responds after it has read everything. The bus responds for one that is gone.
    private func ask(_ name: String) {
        let ping = try? DBusMessage.methodCall(
            destination: name,
            path: "/",
            interface: "org.freedesktop.DBus.Peer",
            member: "Ping"
        )
        // Making the ping fails only without memory, and the connection is missing only when the service ends.
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
                // The bus or this process made this error, for instance because a policy denies the ping.
                case nil, "org.freedesktop.DBus.Error.NoReply", "org.freedesktop.DBus.Error.Timeout",
                    "org.freedesktop.DBus.Error.LimitsExceeded", "org.freedesktop.DBus.Error.AccessDenied":
                    unread.failedToAsk(name)
                    return unread.overdue()
                // Any other error comes from the connection itself, which has therefore read the ping.
                default: break
                }
            }
            if unread.read(name) { toAsk.append(name) }
            return toAsk + unread.overdue()
        }
        for name in toAsk { ask(name) }
    }
}
