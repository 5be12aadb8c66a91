import Basics
import BrokerCore
import DBus
import DBusService
import Glibc
@_spi(Extensions) import SharedDevice
import Synchronization

/// Identifies the caller behind each connection by asking the bus and the kernel (architecture, D11), and notices when
/// a connection ends. A connection is identified at its first call.
final class Callers: Sendable {
    /// Receives the identified caller, or a refusal. Called on the reading thread.
    typealias Continuation = @Sendable (Result<Caller, Refusal>) -> Void

    private let connection: DBusConnection
    private let looks: ProcessLooks
    private let look: @Sendable (DBusConnection.PeerCredentials) -> AppCredentials
    private let unread: UnreadAnswerGuard
    private let arrived: @Sendable (Caller) -> Void
    private let left: @Sendable (String) -> Void
    private let leaves: @Sendable (String) -> Void
    private let hasRoom: @Sendable () -> Bool
    private let state = Locked(State())
    private let observations = Locked<(Observation, MatchRuleLease)?>(nil)

    /// - Parameters:
    ///   - look: Inspects a process. It may never return.
    ///   - busPatience: How long the bus may read nothing before the broker disconnects from it.
    ///   - arrived: A connection has been identified. Comes before its pending continuations, on the reading thread as
    ///     ``left``.
    ///   - left: An identified or followed connection has ended.
    ///   - leaves: The broker disconnects from the bus, for the given reason, and reconnects.
    ///   - hasRoom: Whether the engine accepts another request. After a `false`, the engine calls ``goOn()`` when it
    ///     has room.
    init(
        connection: DBusConnection,
        looks: ProcessLooks = ProcessLooks(),
        look: @escaping @Sendable (DBusConnection.PeerCredentials) -> AppCredentials = Callers.look,
        busPatience: Duration = UnreadAnswerGuard.busPatience,
        arrived: @escaping @Sendable (Caller) -> Void,
        left: @escaping @Sendable (String) -> Void,
        leaves: @escaping @Sendable (String) -> Void = { _ in },
        hasRoom: @escaping @Sendable () -> Bool = { true }
    ) {
        self.connection = connection
        (self.looks, self.look) = (looks, look)
        unread = UnreadAnswerGuard(connection, busPatience: busPatience)
        self.arrived = arrived
        self.left = left
        self.leaves = leaves
        self.hasRoom = hasRoom
    }

    /// Starts to watch for ended connections and to bound unread responses. Both are in force on return.
    func start() async throws(DBusError) {
        connection.schedule(by: self)
        let observation = connection.onSignal { [weak self] in self?.receive($0) }
        let bus = "org.freedesktop.DBus"
        let ends = MatchRule(signalFrom: bus, interface: bus, member: "NameOwnerChanged", argument2: "")
        let lease = try await connection.addMatch(ends)
        observations.withLock { $0 = (observation, lease) }
    }

    /// The limits of calls in flight. No method needs a longer body.
    static var limits: CallLimits {
        var limits = CallLimits()
        limits.bodyBytes = 32 * 1024
        limits.callsOfSender = callsOfConnection
        limits.bytesOfSender = 128 * 1024
        limits.calls = 8192
        limits.bytes = 32 << 20
        return limits
    }

    /// Decides on a call before its body is read. Until the user of a connection is known, the connection has a small
    /// quota; its calls are charged to the user as soon as the user is known.
    func admit(_ call: CallHeader) -> CallAdmission {
        let number = state.withLock { state -> UInt64? in
            state.calls += 1
            var first = FirstCall(number: state.calls, member: call.member, bytes: call.bytes)
            if let caller = state.known[call.sender] {
                return state.charge(&first, to: caller.user) ? first.number : nil
            }
            let earlier = state.asking[call.sender]?.calls ?? []
            let waiting = CallAmount(calls: earlier.count, bytes: earlier.reduce(0) { $0 + ($1.call?.bytes ?? 0) })
            guard waiting.hasRoom(for: call.bytes, within: Self.firstCalls) else { return nil }
            if let user = state.asking[call.sender]?.user, !state.charge(&first, to: user) { return nil }
            state.admitted[call.sender] = first
            return first.number
        }
        guard let number else {
            return .refuse(Self.limitsExceeded("too many requests of this user are in flight; wait for a response"))
        }
        let sender = call.sender
        return .take(ended: { [weak self] in self?.state.withLock { $0.end(number, of: sender) } })
    }

    private static func limitsExceeded(_ message: String) -> MethodFailure {
        MethodFailure(name: "org.freedesktop.DBus.Error.LimitsExceeded", message: message)
    }

    /// The methods that ask about the device as a whole.
    static let questions = [BrokerProtocol.Method.getStatus, .getLog].map(\.rawValue)

    /// The methods of the enforcement program. From users who are not administrators they count as questions, because
    /// refusing hundreds at once costs as much time as carrying them out.
    static let enforcement = [BrokerProtocol.Method.getOverdue, .reportEnforcement].map(\.rawValue)

    /// The quota of a connection whose user is not known yet: small, so that one user's connections leave room for
    /// others.
    static let firstCalls = CallAmount(calls: 16, bytes: 24 * 1024)

    static let callsOfConnection = 64

    /// The quota of calls in flight from all connections of one user. The exported object limits each connection.
    static let limitOfUser = CallAmount(calls: 256, bytes: 512 * 1024)

    /// How much of that quota may be questions about the device as a whole. All of an operator's questions are carried
    /// out, so a person who signs out could have to wait behind this many. A console has three in flight.
    static let questionsOfUser = 16

    /// The rate limit of a user without administrator rights. An app makes a few calls at a sign-in and a sign-out.
    private static let pace = CallPace(atOnce: 64, interval: .milliseconds(10))
    static func pace(of user: UInt32) -> CallPace? { isAdministrator(user) ? nil : pace }

    /// Identifies the caller behind `sender`. `body` runs on the reading thread when the caller is known and its user
    /// has its turn.
    func identify(_ sender: String, _ body: @escaping Continuation) {
        let isReading = connection.isOnReadingThread
        let (isFirst, caller) = state.withLock { state -> (Bool, Caller?) in
            let call = state.admitted.removeValue(forKey: sender)
            if let caller = state.known[sender] {
                if isReading, hasRoom(),
                    state.desk.queue.pass(of: caller.user, now: .now, pace: Self.pace(of: caller.user))
                {
                    return (false, caller)
                }
                state.enqueue(sender, caller, body)
                return (false, nil)
            }
            let isFirst = state.asking[sender] == nil
            state.asking[sender, default: Identification()].calls.append((body, call))
            return (isFirst, nil)
        }
        if let caller { return body(.success(caller)) }
        if isFirst { return ask(sender) }
        // Wakes the reading thread, which carries out queued calls before it sleeps.
        if !isReading { connection.perform {} }
    }

    private func ask(_ sender: String) {
        connection.askCredentials(of: sender) { [weak self] answer in
            guard let self, case .success(let peer) = answer else { return self?.answer(sender, nil) ?? () }
            for body in state.withLock({ $0.vouch(sender, peer.userID) }) { body(.failure(.tooManyQuestions)) }
            let bus = connection.busIdentifier
            let seen: @Sendable (AppCredentials?) -> Void = { [weak self] credentials in
                self?.connection.perform { [weak self] in
                    // After a restart of the bus, the same name can belong to another connection.
                    guard let self, connection.busIdentifier == bus else { return }
                    check(sender, peer, credentials)
                }
            }
            looks.look(of: peer.userID, { [look] in look(peer) }, seen: seen)
        }
    }

    /// A process id can be reused when its process ends. So the content of `/proc` counts only if the process is still
    /// alive afterwards; otherwise, and after a timeout, the caller is identified by its user alone. A bus that
    /// provides no descriptor of the process is asked for the credentials a second time.
    private func check(_ sender: String, _ peer: DBusConnection.PeerCredentials, _ credentials: AppCredentials?) {
        let unseen = AppCredentials(user: peer.userID, executable: ProcessView.unseen, label: peer.securityLabel)
        if let isRunning = peer.isRunning {
            return answer(sender, caller(sender, peer, isRunning ? credentials ?? unseen : unseen))
        }
        connection.askCredentials(of: sender) { [weak self] answer in
            guard let self, case .success(peer) = answer else { return self?.answer(sender, nil) ?? () }
            self.answer(sender, caller(sender, peer, credentials ?? unseen))
        }
    }

    private static let look: @Sendable (DBusConnection.PeerCredentials) -> AppCredentials = { peer in
        ProcessView.credentials(ofProcess: peer.processID, user: peer.userID, label: peer.securityLabel)
    }

    private func caller(
        _ sender: String,
        _ peer: DBusConnection.PeerCredentials,
        _ credentials: AppCredentials
    ) -> Caller? {
        global(sender).map { name in
            Caller(
                connection: name,
                credentials: credentials,
                process: peer.processID,
                isAdministrator: Self.isAdministrator(peer.userID)
            )
        }
    }

    private func answer(_ sender: String, _ caller: Caller?) {
        // The connection ended while its process was inspected.
        guard state.withLock({ $0.asking[sender] != nil }) else { return }
        if let caller { arrived(caller) }
        let refused = state.withLock { state -> [Continuation] in
            let calls = state.asking.removeValue(forKey: sender)?.calls ?? []
            guard let caller else { return calls.map(\.body) }
            state.known[sender] = caller
            return calls.compactMap { body, call in
                if var call, !state.charge(&call, to: caller.user) { return body }
                state.enqueue(sender, caller, body)
                return nil
            }
        }
        for body in refused { body(.failure(caller == nil ? .requestAbandoned : .tooManyQuestions)) }
        // The connection had ended before the bus responded.
        if caller == nil { unread.gone(sender) }
    }

    static func isAdministrator(_ user: UInt32) -> Bool { user == 0 || user == geteuid() }

    /// The connection's name with the bus's identifier in front; `nil` while there is no bus.
    private func global(_ name: String) -> String? { connection.busIdentifier.map { $0 + name } }

    /// Also reports the ends of connections that are known from an earlier run. Returns the connections that have
    /// ended.
    ///
    /// - Throws: ``DBusError``; `disconnected` if the bus is lost during the call: its list of names is then out of
    ///   date.
    func follow(_ connections: Set<String>) async throws(DBusError) -> Set<String> {
        state.withLock { $0.followed.formUnion(connections) }
        let bus = connection.busIdentifier
        let names = try await connection.callBus("ListNames").first?.stringsValue ?? []
        guard let bus, bus == connection.busIdentifier else {
            throw DBusError(.disconnected, message: "the bus is lost", attempted: "see which processes are there")
        }
        let ended = connections.subtracting(names.map { bus + $0 })
        state.withLock { $0.followed.subtract(ended) }
        return ended
    }

    func forgetAll() {
        // Released outside the lock: ending a pending call takes the lock.
        let abandoned = state.withLock { state in
            (state.known, state.followed, state.admitted) = ([:], [], [:])
            state.queued = [:]
            defer { state.desk.queue = FairQueue(lap: 1) }
            return state.desk.queue
        }
        withExtendedLifetime(abandoned) {}
        abandon(state.withLock { Array($0.asking.keys) })
        unread.forgetAll()
    }

    private func abandon(_ names: [String]) {
        let calls = state.withLock { state in names.flatMap { state.asking.removeValue(forKey: $0)?.calls ?? [] } }
        for (body, _) in calls { body(.failure(.requestAbandoned)) }
    }

    private func receive(_ message: borrowing DBusMessage) {
        guard message.isBusSignal("NameOwnerChanged"), let arguments = try? message.arguments(), arguments.count == 3,
            let name = arguments[0].stringValue, name.hasPrefix(":"), arguments[2].stringValue == ""
        else { return }
        let connection = global(name)
        // Ends a pending identification at once: the bus would only respond that the connection has ended.
        abandon([name])
        let isFollowed = state.withLock { state in
            state.admitted[name] = nil
            let wasKnown = state.known.removeValue(forKey: name) != nil
            guard let connection, state.followed.remove(connection) != nil || wasKnown else { return false }
            // Requests that the connection sent before it ended are still carried out.
            guard state.queued[connection] != nil else { return true }
            state.queued[connection]?.isLeaving = true
            return false
        }
        // Last: a response from another thread either comes before this, or sees that the connection has ended.
        unread.gone(name)
        if isFollowed, let connection { left(connection) }
    }
}

// A bus that has queued too much for callers that do not read stops reading from the broker. The limits below keep the
// queue short.
extension Callers: CallScheduler {
    /// The limit of unread responses of a connection and of a user: hundreds of the longest responses.
    static let unreadRoom = UnreadAnswers.Room(connection: 4 << 20, user: 8 << 20)

    func admit(_ call: borrowing MessageHeader) -> CallPermission {
        guard let sender = call.sender else { return .drop }
        let (user, isFull) = state.withLock { state in (state.known[sender]?.user, state.isFull(sender)) }
        // A call that expects no reply cannot be refused. Beyond the quota it is dropped unread.
        guard call.expectsReply else { return isFull ? .drop : .take }
        switch unread.standing(of: sender, user, user == nil ? .ofStrangers : Self.unreadRoom) {
        case .anything: return .take
        case .refusals:
            return .refuse(Self.limitsExceeded(UnreadAnswerGuard.remedy))
        case .nothing:
            unread.dropped(sender)
            return .drop
        }
    }

    func announced() { unread.sentToAll() }

    func answered(_ caller: String, bytes: Int) {
        let user = state.withLock { $0.known[caller]?.user }
        // The reading thread may have processed the end of the connection before this.
        let isLate = user == nil && !connection.isOnReadingThread
        unread.sent(bytes, to: caller, user, isLate: isLate)
        guard user != nil, !connection.isOnReadingThread, state.withLock({ $0.known[caller] == nil }) else { return }
        // The connection ended during this call.
        unread.gone(caller)
    }

    func goOn() { connection.perform {} }

    /// Carries out calls for a short time, while the engine has room.
    func carryOut() -> ContinuousClock.Instant? {
        var hasRoom = true
        let now = work { now in
            hasRoom = self.hasRoom()
            guard hasRoom, let call = state.withLock({ $0.desk.queue.next(now: now, pace: Self.pace(of:)) }) else {
                return false
            }
            call.body(.success(call.caller))
            let (isLast, isGone) = state.withLock { ($0.ended(call), $0.known[call.sender] == nil) }
            // The bus discards responses to an ended connection.
            if isGone { unread.gone(call.sender) }
            if isLast { left(call.caller.connection) }
            return true
        }
        let next = hasRoom ? state.withLock { $0.desk.queue.timeOfNext(now: now) } : nil
        return [next, unread.askBus(leaves: leaves)].compactMap(\.self).min()
    }
}

// The state of connections and of their calls in flight. The rest of ``Callers`` asks the bus and takes the lock.
extension Callers {
    struct FirstCall {
        let number: UInt64
        let member: String
        let bytes: Int
        var isCharged = false
    }

    /// The calls of a connection whose process is being inspected, and the user that the bus has named.
    struct Identification {
        var user: UInt32?
        var calls: [(body: Continuation, call: FirstCall?)] = []
    }

    struct Charge {
        let user: UInt32
        let bytes: Int
        let isQuestion: Bool
    }

    struct State {
        var known: [String: Caller] = [:]
        var asking: [String: Identification] = [:]
        /// By connection, the admitted call that has not reached ``identify(_:_:)`` yet.
        var admitted: [String: FirstCall] = [:]
        var calls: UInt64 = 0
        /// The charges of calls in flight, by number. Only calls of known users have one.
        var charges: [UInt64: Charge] = [:]
        /// The connections given to ``follow(_:)`` that have not ended.
        var followed: Set<String> = []
        /// The calls in flight of each user, and the queue of calls from known callers.
        var desk = ServiceFrontDesk<WaitingCall>(lap: 1)
        /// The part of each user's calls in flight that asks about the device as a whole.
        var questions = Quotas<UInt32>()
        /// The number of queued calls of each connection, by its global name, and whether the connection has ended.
        var queued: [String: (calls: Int, isLeaving: Bool)] = [:]

        mutating func enqueue(_ sender: String, _ caller: Caller, _ body: @escaping Continuation) {
            desk.queue.append(
                WaitingCall(sender: sender, caller: caller, body: body),
                of: caller.user,
                pace: pace(of: caller.user)
            )
            queued[caller.connection, default: (0, false)].calls += 1
        }

        /// Counts a call that had its turn. Returns whether the connection has ended and this was its last call.
        mutating func ended(_ call: WaitingCall) -> Bool {
            let connection = call.caller.connection
            queued[connection]?.calls -= 1
            guard let left = queued[connection], left.calls == 0 else { return false }
            queued[connection] = nil
            return left.isLeaving
        }

        /// Whether the connection's quota is used up, even for a small call.
        func isFull(_ sender: String) -> Bool {
            // The exported object also limits each connection, but takes several times as long to refuse.
            let caller = known[sender]
            if let caller, queued[caller.connection]?.calls ?? 0 >= callsOfConnection { return true }
            if let user = caller?.user ?? asking[sender]?.user,
                !desk.users[user].hasRoom(for: 1, within: limitOfUser)
            {
                return true
            }
            return caller == nil && asking[sender]?.calls.count ?? 0 >= firstCalls.calls
        }

        /// Charges a call to a user until ``end(_:of:)``, unless it is charged already. Returns whether the quota
        /// allowed it.
        mutating func charge(_ call: inout FirstCall, to user: UInt32) -> Bool {
            if call.isCharged { return true }
            let isQuestion =
                Callers.questions.contains(call.member)
                || !isAdministrator(user) && enforcement.contains(call.member)
            guard !isQuestion || questions[user].calls < questionsOfUser,
                desk.users.begin(call.bytes, of: user, within: limitOfUser)
            else { return false }
            if isQuestion { questions.begin(call.bytes, of: user) }
            charges[call.number] = Charge(user: user, bytes: call.bytes, isQuestion: isQuestion)
            call.isCharged = true
            return true
        }

        /// Charges a connection's calls to its user, whom the bus has named. Returns the calls beyond the quota.
        mutating func vouch(_ sender: String, _ user: UInt32) -> [Continuation] {
            guard let calls = asking[sender]?.calls else { return [] }
            var (kept, refused) = (Identification(user: user), [Continuation]())
            for (body, call) in calls {
                guard var first = call else {
                    kept.calls.append((body, nil))
                    continue
                }
                if charge(&first, to: user) { kept.calls.append((body, first)) } else { refused.append(body) }
            }
            asking[sender] = kept
            return refused
        }

        /// Ends the charge of a call that has its response, or whose caller no longer waits.
        mutating func end(_ number: UInt64, of sender: String) {
            if admitted[sender]?.number == number { admitted[sender] = nil }
            guard let charge = charges.removeValue(forKey: number) else { return }
            desk.users.end(charge.bytes, of: charge.user)
            if charge.isQuestion { questions.end(charge.bytes, of: charge.user) }
        }
    }

    struct WaitingCall {
        let sender: String
        let caller: Caller
        let body: Continuation
    }
}
