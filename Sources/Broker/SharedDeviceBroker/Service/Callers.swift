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

    private struct State {
        var known: [String: Caller] = [:]
        var asking: [String: [Continuation]] = [:]
        /// What ``follow(_:)`` was given and has not ended.
        var followed: Set<String> = []
        var budget = UserBudget()
    }

    private let connection: DBusConnection
    private let arrived: @Sendable (Caller) -> Void
    private let left: @Sendable (String) -> Void
    private let state = Locked(State())
    private let observations = Locked<(Observation, MatchRuleLease)?>(nil)

    /// - Parameters:
    ///   - arrived: a connection has been identified. Called on the reading thread, before what waits for it.
    ///   - left: a connection that had arrived, or that is followed, is gone. Called on the reading thread.
    init(
        connection: DBusConnection,
        arrived: @escaping @Sendable (Caller) -> Void,
        left: @escaping @Sendable (String) -> Void
    ) {
        self.connection = connection
        self.arrived = arrived
        self.left = left
    }

    /// Begins to watch. In force on return.
    func start() async throws(DBusError) {
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
        limits.callsOfSender = 64
        limits.bytesOfSender = 128 * 1024
        limits.calls = 8192
        limits.bytes = 32 << 20
        return limits
    }

    /// Decides on a call before anything of its body is read. A connection whose user is not known yet may say little.
    func admit(_ call: CallHeader) -> CallAdmission {
        let bytes = call.bodyBytes
        let (user, isQuestion, hasRoom) = state.withLock { state -> (UInt32?, Bool, Bool) in
            if let caller = state.known[call.sender] {
                let isQuestion =
                    Self.questions.contains(call.member)
                    || !caller.isAdministrator && Self.enforcement.contains(call.member)
                return (
                    caller.user, isQuestion, state.budget.begin(caller.user, bytes: bytes, isQuestion: isQuestion)
                )
            }
            return (
                nil, false, bytes <= Self.longestFirstCall && state.asking[call.sender]?.count ?? 0 < Self.firstCalls
            )
        }
        guard hasRoom else {
            return .refuse(
                MethodFailure(
                    name: "org.freedesktop.DBus.Error.LimitsExceeded",
                    message: "too many requests of this user are under way; wait for an answer"
                )
            )
        }
        guard let user else { return .take() }
        return .take(ended: { [weak self] in
            self?.state.withLock { $0.budget.end(user, bytes: bytes, isQuestion: isQuestion) }
        })
    }

    /// What asks about the device as a whole.
    private static let questions = Set([BrokerProtocol.Method.getStatus, .getLog].map(\.rawValue))

    /// What administrators alone may ask. Of others it is counted with their questions: to refuse hundreds at once takes as long as to answer them.
    private static let enforcement = Set([BrokerProtocol.Method.getOverdue, .reportEnforcement].map(\.rawValue))

    /// The longest body of a call whose user is not known yet, and how many of these one connection may have under way.
    private static let longestFirstCall = 16 * 1024
    private static let firstCalls = 16

    /// Finds the caller behind `sender`. `body` runs at once where it is known, otherwise later on the reading thread.
    func identify(_ sender: String, _ body: @escaping Continuation) {
        let (known, isFirst) = state.withLock { state -> (Caller?, Bool) in
            if let caller = state.known[sender] { return (caller, false) }
            state.asking[sender, default: []].append(body)
            return (nil, state.asking[sender]?.count == 1)
        }
        if let known { body(.success(known)) } else if isFirst { ask(sender) }
    }

    /// A process id may pass to another process when its owner ends. What `/proc` says therefore counts if the process has not ended
    /// afterwards, by the descriptor that the bus gives of it; else the caller is known by its user alone. A bus that gives none is asked a
    /// second time.
    private func ask(_ sender: String) {
        connection.askCredentials(of: sender) { [weak self] answer in
            guard let self, case .success(let peer) = answer else { return self?.answer(sender, nil) ?? () }
            let look = { (process: UInt32?) in
                ProcessView.credentials(ofProcess: process, user: peer.userID, label: peer.securityLabel)
            }
            let credentials = look(peer.processID)
            if let isRunning = peer.isRunning {
                return self.answer(sender, caller(sender, peer, isRunning ? credentials : look(nil)))
            }
            connection.askCredentials(of: sender) { [weak self] answer in
                guard let self, case .success(peer) = answer else { return self?.answer(sender, nil) ?? () }
                self.answer(sender, caller(sender, peer, credentials))
            }
        }
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
                isAdministrator: peer.userID == 0 || peer.userID == geteuid()
            )
        }
    }

    private func answer(_ sender: String, _ caller: Caller?) {
        if let caller { arrived(caller) }
        let waiting = state.withLock { state -> [Continuation] in
            if let caller { state.known[sender] = caller }
            return state.asking.removeValue(forKey: sender) ?? []
        }
        for body in waiting { body(caller.map { .success($0) } ?? .failure(.requestAbandoned)) }
    }

    /// A connection's name together with the bus's own, which each run of a bus makes anew; `nil` where there is no bus.
    private func global(_ name: String) -> String? { connection.busIdentifier.map { $0 + name } }

    /// Tells the ends of connections that an earlier run of the broker has known, too.
    ///
    /// - Returns: those that have ended before.
    func follow(_ connections: Set<String>) async throws(DBusError) -> Set<String> {
        state.withLock { $0.followed = connections }
        let names = try await connection.callBus("ListNames").first?.stringsValue ?? []
        let ended = connections.subtracting(names.compactMap { global($0) })
        state.withLock { $0.followed.subtract(ended) }
        return ended
    }

    /// The bus is gone, and all connections with it.
    func forgetAll() { state.withLock { ($0.known, $0.followed) = ([:], []) } }

    private func receive(_ message: borrowing DBusMessage) {
        guard message.isBusSignal("NameOwnerChanged"), let arguments = try? message.arguments(),
            arguments.count == 3, let name = arguments[0].stringValue, name.hasPrefix(":"),
            arguments[2].stringValue == "", let connection = global(name),
            state.withLock({ state in
                let wasKnown = state.known.removeValue(forKey: name) != nil
                return state.followed.remove(connection) != nil || wasKnown
            })
        else { return }
        left(connection)
    }
}
