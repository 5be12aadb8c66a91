import DBusTransport
import Glibc
import SharedDevice
import Synchronization

/// Finds out who is behind each connection that calls the broker, by asking bus and kernel (architecture, D11), and notices when it is gone.
///
/// A connection is identified at its first call; later calls of it cost nothing. One match rule tells of the ends of all of them.
final class Callers: Sendable {
    /// What waits for an answer about a connection; called on the reading thread.
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
    ///   - arrived: a connection has been identified. Called on the reading thread, before what waits for it.
    ///   - left: a connection that had arrived, or that is followed, is gone. Called on the reading thread.
    ///   - leaves: the broker leaves the bus, for this reason, and comes back. Called on the reading thread.
    ///   - look: what is seen of a process. It may never return.
    ///   - busPatience: how long the bus may read nothing before the broker leaves it.
    ///   - hasRoom: whether what carries requests out takes another one. Where it does not, it calls ``goOn()`` later.
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

    /// Begins to watch, and to bound what callers leave unread. In force on return.
    func start() async throws(DBusError) {
        connection.schedule(by: self)
        let observation = connection.onSignal { [weak self] in self?.receive($0) }
        let lease = try await connection.addMatch(
            MatchRule(
                signalFrom: "org.freedesktop.DBus",
                interface: "org.freedesktop.DBus",
                member: "NameOwnerChanged",
                argument2: ""
            )
        )
        observations.withLock { $0 = (observation, lease) }
    }

    /// The most that connections may have under way: a body is at most as long as any method needs it.
    static var limits: CallLimits {
        var limits = CallLimits()
        limits.bodyBytes = 32 * 1024
        limits.callsOfSender = callsOfConnection
        limits.bytesOfSender = 128 * 1024
        limits.calls = 8192
        limits.bytes = 32 << 20
        return limits
    }

    /// Decides on a call before anything of its body is read. A connection whose user is not known yet may say little, and its user has to answer
    /// for that as soon as it is known.
    func admit(_ call: CallHeader) -> CallAdmission {
        let bytes = call.bytes
        let number = state.withLock { state -> UInt64? in
            state.calls += 1
            let number = state.calls
            if let caller = state.known[call.sender] {
                return state.charge(number, caller.user, call.member, bytes: bytes) ? number : nil
            }
            let earlier = state.asking[call.sender] ?? []
            let waiting = CallAmount(calls: earlier.count, bytes: earlier.reduce(0) { $0 + ($1.call?.bytes ?? 0) })
            guard waiting.hasRoom(for: bytes, within: Self.firstCalls) else { return nil }
            let user = state.users[call.sender]
            if let user, !state.charge(number, user, call.member, bytes: bytes) { return nil }
            state.admitted[call.sender] = FirstCall(
                number: number,
                member: call.member,
                bytes: bytes,
                isCharged: user != nil
            )
            return number
        }
        guard let number else {
            return .refuse(
                MethodFailure(
                    name: "org.freedesktop.DBus.Error.LimitsExceeded",
                    message: "too many requests of this user are under way; wait for an answer"
                )
            )
        }
        let sender = call.sender
        return .take(ended: { [weak self] in self?.state.withLock { $0.end(number, of: sender) } })
    }

    /// What asks about the device as a whole.
    static let questions = Set([BrokerProtocol.Method.getStatus, .getLog].map(\.rawValue))

    /// What administrators alone may ask. A call of these by anybody else counts as a question: to refuse hundreds at once takes as long as to answer them.
    static let enforcement = Set([BrokerProtocol.Method.getOverdue, .reportEnforcement].map(\.rawValue))

    /// What a connection may have under way before its user is known: little, so that all connections of one user leave room for others.
    static let firstCalls = CallAmount(calls: 16, bytes: 24 * 1024)

    /// How many calls one connection may have under way.
    static let callsOfConnection = 64

    /// What all connections of one user may have under way. The object bounds each of them.
    static let limitOfUser = CallAmount(calls: 256, bytes: 512 * 1024)

    /// How much of that may be questions about the device as a whole. An operator's are all carried out, so that a person who signs out would wait
    /// behind as many as there may be. A console has three open.
    static let questionsOfUser = 16

    /// How fast the calls of a user are carried out who is no administrator: an app makes a few at a sign-in and a sign-out.
    private static let pace = CallPace(atOnce: 64, interval: .milliseconds(10))
    static func pace(of user: UInt32) -> CallPace? { isAdministrator(user) ? nil : pace }

    /// Finds the caller behind `sender`. `body` runs on the reading thread: when the caller is known, and it is its user's turn.
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
            state.asking[sender, default: []].append((body, call))
            return (isFirst, nil)
        }
        if let caller { return body(.success(caller)) }
        if isFirst { return ask(sender) }
        // It looks for turns before it sleeps.
        if !isReading { connection.perform {} }
    }

    private func ask(_ sender: String) {
        connection.askCredentials(of: sender) { [weak self] answer in
            guard let self, case .success(let peer) = answer else { return self?.answer(sender, nil) ?? () }
            for body in state.withLock({ $0.vouch(sender, peer.userID) }) { body(.failure(.tooManyQuestions)) }
            let bus = connection.busIdentifier
            let seen: @Sendable (AppCredentials?) -> Void = { [weak self] credentials in
                self?.connection.perform { [weak self] in
                    // A later run of the bus has other connections by the same names.
                    guard let self, connection.busIdentifier == bus else { return }
                    check(sender, peer, credentials)
                }
            }
            looks.look(of: peer.userID, { [look] in look(peer) }, seen: seen)
        }
    }

    /// A process id may pass to another process when its owner ends. What `/proc` says therefore counts if the process has not ended
    /// afterwards, by the descriptor that the bus gives of it; else the caller is known by its user alone, as where nothing was seen in time. A
    /// bus that gives no descriptor is asked a second time.
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
        // It has gone while its process was looked at.
        guard state.withLock({ $0.asking[sender] != nil }) else { return }
        if let caller { arrived(caller) }
        let refused = state.withLock { state -> [(body: Continuation, refusal: Refusal)] in
            let waiting = state.asking.removeValue(forKey: sender) ?? []
            state.users[sender] = nil
            guard let caller else { return waiting.map { ($0.body, .requestAbandoned) } }
            state.known[sender] = caller
            var refused: [(Continuation, Refusal)] = []
            for (body, call) in waiting {
                if let call, !call.isCharged, !state.charge(call.number, caller.user, call.member, bytes: call.bytes) {
                    refused.append((body, .tooManyQuestions))
                } else {
                    state.enqueue(sender, caller, body)
                }
            }
            return refused
        }
        for (body, refusal) in refused { body(.failure(refusal)) }
        // It is gone, and was so before it was answered.
        if caller == nil { unread.gone(sender) }
    }

    static func isAdministrator(_ user: UInt32) -> Bool { user == 0 || user == geteuid() }

    /// A connection's name together with the bus's own, which each run of a bus makes anew; `nil` where there is no bus.
    private func global(_ name: String) -> String? { connection.busIdentifier.map { $0 + name } }

    /// Tells the ends of connections that an earlier run of the broker has known, too.
    ///
    /// - Returns: those that have ended before.
    /// - Throws: ``DBusError``; among them `disconnected` where the bus is lost meanwhile: then its answer says nothing of who is there.
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

    /// The bus is gone, and all connections with it.
    func forgetAll() {
        // The end of a call that waits takes the lock.
        let abandoned = state.withLock { state in
            (state.known, state.followed, state.admitted) = ([:], [], [:])
            (state.waiting, state.leaving) = ([:], [])
            defer { state.desk.queue = FairQueue(lap: 1) }
            return state.desk.queue
        }
        withExtendedLifetime(abandoned) {}
        abandon(state.withLock { Array($0.asking.keys) })
        unread.forgetAll()
    }

    /// Nobody finds out any more who calls by these names.
    private func abandon(_ names: [String]) {
        let bodies = state.withLock { state -> [(body: Continuation, call: FirstCall?)] in
            for name in names { state.users[name] = nil }
            return names.flatMap { state.asking.removeValue(forKey: $0) ?? [] }
        }
        for (body, _) in bodies { body(.failure(.requestAbandoned)) }
    }

    private func receive(_ message: borrowing DBusMessage) {
        guard message.isBusSignal("NameOwnerChanged"), let arguments = try? message.arguments(),
            arguments.count == 3, let name = arguments[0].stringValue, name.hasPrefix(":"),
            arguments[2].stringValue == ""
        else { return }
        let connection = global(name)
        // While its process is looked at: an answer of the bus about it would say that it is gone.
        abandon([name])
        let isFollowed = state.withLock { state in
            state.admitted[name] = nil
            let wasKnown = state.known.removeValue(forKey: name) != nil
            guard let connection, state.followed.remove(connection) != nil || wasKnown else { return false }
            // What it has asked for is done before it is gone: it may have meant that to be its last word.
            guard state.waiting[connection] != nil else { return true }
            state.leaving.insert(connection)
            return false
        }
        // After that, so that an answer of another thread either comes before this, or sees that nobody is there.
        unread.gone(name)
        if isFollowed, let connection { left(connection) }
    }
}

// A bus reads nothing more from the broker, for anybody, while it keeps too much for callers that do not read.
extension Callers: CallScheduler {
    /// What a connection and its user may leave unread: hundreds of the longest answers, thousands of the usual ones.
    static let unreadRoom = UnreadAnswers.Room(connection: 4 << 20, user: 8 << 20)

    func admit(_ call: borrowing MessageHeader) -> CallPermission {
        guard let sender = call.sender else { return .drop }
        let (user, isFull) = state.withLock { state in (state.known[sender]?.user, state.isFull(sender)) }
        // Of a flood nothing more is looked at.
        guard call.expectsReply else { return isFull ? .drop : .take }
        switch unread.standing(of: sender, user, user == nil ? .ofStrangers : Self.unreadRoom) {
        case .anything: return .take
        case .refusals:
            return .refuse(
                MethodFailure(name: "org.freedesktop.DBus.Error.LimitsExceeded", message: UnreadAnswerGuard.remedy)
            )
        case .nothing:
            unread.dropped(sender)
            return .drop
        }
    }

    /// The broker has told all of a change.
    func announced() { unread.sentToAll() }

    func answered(_ caller: String, bytes: Int) {
        let user = state.withLock { $0.known[caller]?.user }
        // The end of a connection is heard on the reading thread, perhaps before this.
        let isLate = user == nil && !connection.isOnReadingThread
        unread.sent(bytes, to: caller, user, isLate: isLate)
        guard user != nil, !connection.isOnReadingThread, state.withLock({ $0.known[caller] == nil }) else { return }
        // It has gone meanwhile.
        unread.gone(caller)
    }

    /// What carries requests out takes another one again.
    func goOn() { connection.perform {} }

    /// Carries out calls for a moment, as long as there is room for them.
    func carryOut() -> ContinuousClock.Instant? {
        var hasRoom = true
        let now = work { now in
            hasRoom = self.hasRoom()
            guard hasRoom, let call = state.withLock({ $0.desk.queue.next(now: now, pace: Self.pace(of:)) }) else {
                return false
            }
            call.body(.success(call.caller))
            let (isLast, isGone) = state.withLock { ($0.ended(call), $0.known[call.sender] == nil) }
            // The bus keeps no answer for it.
            if isGone { unread.gone(call.sender) }
            if isLast { left(call.caller.connection) }
            return true
        }
        let next = hasRoom ? state.withLock { $0.desk.queue.timeOfNext(now: now) } : nil
        return [next, unread.askBus(leaves: leaves)].compactMap(\.self).min()
    }
}
