import DBusTransport
import Logging
import NotifyCenter
import Synchronization

/// Follows logind's sessions over D-Bus. logind may start later.
final class LoginWatch: Sendable {
    private static let service = "org.freedesktop.login1"
    private static let manager = "/org/freedesktop/login1"
    private static let sessionInterface = "org.freedesktop.login1.Session"
    private static let properties = "org.freedesktop.DBus.Properties"
    /// The pause before the next attempt to connect to a bus that is not there.
    private static let retryPause = Duration.seconds(30)
    /// The pause before the next question to a logind that did not answer.
    private static let answerPause = Duration.seconds(5)

    /// What logind said.
    private enum Word: Sendable {
        /// logind came or went, its signals may have been lost, or there is a new session: all sessions have to be listed again.
        case doubt
        case lock(String)
        case locked(String, Bool)
        case removed(String)
    }

    /// What logind said and this class has not looked at yet, in its order. It is bounded: what does not fit becomes a doubt, and any number of
    /// doubts is one.
    private final class Words: Sendable {
        let stream: AsyncStream<Word>
        private let continuation: AsyncStream<Word>.Continuation
        private let state = Locked(State())

        private struct State {
            /// The words in the stream.
            var waiting = 0
            /// All sessions have to be listed when so many more words were taken: what they say is older.
            var doubtAfter: Int?
        }

        init() {
            (stream, continuation) = AsyncStream.makeStream(bufferingPolicy: .bufferingOldest(256))
        }

        func add(_ word: Word) {
            state.withLock { state in
                if case .doubt = word, state.doubtAfter != nil { return }
                if case .dropped = continuation.yield(word) {
                    state.doubtAfter = state.waiting
                } else {
                    state.waiting += 1
                    if case .doubt = word { state.doubtAfter = state.waiting }
                }
            }
        }

        /// Whether all sessions have to be listed now; asked once after each word.
        func takeDoubt() -> Bool {
            state.withLock { state in
                state.waiting -= 1
                guard let left = state.doubtAfter.map({ $0 - 1 }) else { return false }
                state.doubtAfter = left > 0 ? left : nil
                return left <= 0
            }
        }
    }

    private let task: Task<Void, Never>

    /// - Parameter heard: what people did, one event after the other.
    init(
        bus: Bus,
        scope: LoginSessions.Scope,
        log: Logger,
        heard: @escaping @Sendable (LoginEvent) -> Void
    ) {
        task = Task { await Self.follow(bus, scope, log, heard) }
    }

    deinit { task.cancel() }

    private static func follow(
        _ bus: Bus,
        _ scope: LoginSessions.Scope,
        _ log: Logger,
        _ heard: @Sendable (LoginEvent) -> Void
    ) async {
        var hasTold = false
        while !Task.isCancelled {
            do throws(DBusError) {
                return try await follow(DBusConnection.open(bus), scope, log, heard)
            } catch {
                if !hasTold {
                    log.info("login sessions are not followed", metadata: ["bus": "\(bus)", "reason": "\(error)"])
                }
                hasTold = true
            }
            try? await Task.sleep(for: retryPause)
        }
    }

    private static func follow(
        _ connection: DBusConnection,
        _ scope: LoginSessions.Scope,
        _ log: Logger,
        _ heard: @Sendable (LoginEvent) -> Void
    ) async throws(DBusError) {
        let words = Words()
        let owner = Locked<String?>(nil)
        let tokens = [
            connection.onSignal { message in
                if message.isBusSignal("NameOwnerChanged") {
                    guard let arguments = try? message.arguments(), arguments.count == 3,
                        arguments[0].stringValue == service
                    else { return }
                    let name = arguments[2].stringValue.flatMap { $0.isEmpty ? nil : $0 }
                    owner.withLock { $0 = name }
                    words.add(.doubt)
                } else if let sender = message.sender, sender == owner.withLock({ $0 }), let word = word(message) {
                    words.add(word)
                }
            },
            try connection.onEvent { event in
                if case .restored = event { words.add(.doubt) }
            },
        ]
        let leases = [
            try await connection.addMatch(
                MatchRule(
                    signalFrom: "org.freedesktop.DBus",
                    interface: "org.freedesktop.DBus",
                    member: "NameOwnerChanged",
                    argument0: service
                )
            ),
            try await connection.addMatch(MatchRule(signalFrom: service)),
        ]
        defer { withExtendedLifetime((tokens, leases)) {} }
        words.add(.doubt)
        var sessions = LoginSessions(scope: scope)
        var isKnown: Bool?
        for await word in words.stream {
            switch word {
            case .doubt: break
            case .lock(let path): if let event = sessions.lockRequested(at: path) { heard(event) }
            case .locked(let path, let isLocked): if let event = sessions.setLocked(isLocked, at: path) { heard(event) }
            case .removed(let path): if let event = sessions.removed(path) { heard(event) }
            }
            guard words.takeDoubt() else { continue }
            let isThere = await list(connection, owner, &sessions, heard)
            if isThere != isKnown {
                log.info(isThere ? "following login sessions" : "no logind: login sessions are not followed")
            }
            isKnown = isThere
            if !isThere, owner.withLock({ $0 }) != nil {
                // logind is there and did not answer in time: it is asked again, so that its sessions are not missed for ever.
                Task {
                    try? await Task.sleep(for: answerPause)
                    words.add(.doubt)
                }
            }
        }
    }

    // MARK: What logind says

    private static func word(_ message: borrowing DBusMessage) -> Word? {
        guard let path = message.path, let member = message.member, let arguments = try? message.arguments() else {
            return nil
        }
        switch (message.interface, member) {
        case (sessionInterface, "Lock"):
            return .lock(path)
        case (properties, "PropertiesChanged"):
            guard arguments.count == 3, arguments[0].stringValue == sessionInterface else { return nil }
            if let isLocked = arguments[1].fieldsValue?["LockedHint"]?.booleanValue { return .locked(path, isLocked) }
            return arguments[2].stringsValue?.contains("LockedHint") == true ? .doubt : nil
        case ("org.freedesktop.login1.Manager", "SessionNew"): return .doubt
        case ("org.freedesktop.login1.Manager", "SessionRemoved"):
            return arguments.count == 2 ? arguments[1].stringValue.map(Word.removed) : nil
        default:
            return nil
        }
    }

    /// Asks for all sessions. Returns whether logind answered.
    private static func list(
        _ connection: DBusConnection,
        _ owner: borrowing Locked<String?>,
        _ sessions: inout LoginSessions,
        _ heard: @Sendable (LoginEvent) -> Void
    ) async -> Bool {
        do throws(DBusError) {
            let name = try await connection.owner(of: service)
            owner.withLock { $0 = name }
            guard name != nil else { return false }
            let call = try DBusMessage.methodCall(
                destination: service,
                path: manager,
                interface: "org.freedesktop.login1.Manager",
                member: "ListSessions"
            )
            // Each is: id, user id, user name, seat, object path.
            let paths = (try await connection.call(call).first?.elementsValue ?? []).compactMap { entry -> String? in
                guard case .structure(let members) = entry, members.count >= 5 else { return nil }
                return members[4].stringValue
            }
            sessions.listed(paths).forEach(heard)
            for path in paths {
                guard let session = await look(connection, path) else { continue }
                if let event = sessions.found(session, at: path) { heard(event) }
            }
            return true
        } catch {
            return false
        }
    }

    /// Asks about one session. If it is gone by then, its end is reported by a signal.
    private static func look(_ connection: DBusConnection, _ path: String) async -> LoginSessions.Session? {
        let answer = try? await connection.call(
            .methodCall(
                destination: service,
                path: path,
                interface: properties,
                member: "GetAll",
                arguments: [.string(sessionInterface)]
            )
        )
        return LoginSessions.Session(answer?.first?.fieldsValue ?? [:])
    }
}

extension LoginSessions.Session {
    /// The properties of `org.freedesktop.login1.Session`; `nil` where one is missing.
    fileprivate init?(_ properties: [String: DBusValue]) {
        guard case .structure(let user)? = properties["User"], case .structure(let seat)? = properties["Seat"],
            let userID = user.first?.unsignedValue.flatMap(UInt32.init(exactly:)), let seat = seat.first?.stringValue,
            let type = properties["Type"]?.stringValue, let sessionClass = properties["Class"]?.stringValue
        else { return nil }
        self.init(
            userID: userID,
            seat: seat,
            type: type,
            sessionClass: sessionClass,
            isLocked: properties["LockedHint"]?.booleanValue ?? false
        )
    }
}

/// The login sessions of this machine that matter to the device's account, as logind tells of them. Pure.
///
/// A broker on a session bus follows its own user's sessions at a seat: when a session over the network ends, nobody leaves the device. A broker
/// on the system bus follows the graphical sessions of all users at the machine's seat. A session in the background counts too: its user has
/// handed the device to another.
struct LoginSessions: Sendable {
    /// Whose sessions matter.
    enum Scope: Sendable, Equatable {
        /// This user's.
        case user(UInt32)
        /// The graphical ones here.
        case seat(String)
    }

    /// What a session is, by logind's word.
    struct Session: Sendable, Equatable {
        var userID: UInt32
        /// Empty for one over the network.
        var seat: String
        /// `tty`, `x11`, `wayland`, `mir`, `unspecified`.
        var type: String
        /// `user`, `greeter`, `lock-screen`, `background`, `manager`.
        var sessionClass: String
        var isLocked: Bool
    }

    let scope: Scope
    private var sessions: [String: Session] = [:]

    init(scope: Scope) { self.scope = scope }

    /// What logind says of the session at `path`.
    mutating func found(_ session: Session, at path: String) -> LoginEvent? {
        guard matters(session) else {
            sessions[path] = nil
            return nil
        }
        let wasLocked = sessions.updateValue(session, forKey: path)?.isLocked ?? false
        return session.isLocked && !wasLocked ? .locked : nil
    }

    /// The session's screen is locked, or not any more.
    mutating func setLocked(_ isLocked: Bool, at path: String) -> LoginEvent? {
        guard let wasLocked = sessions[path]?.isLocked else { return nil }
        sessions[path]?.isLocked = isLocked
        return isLocked && !wasLocked ? .locked : nil
    }

    /// Somebody asks for the session's screen to be locked. The program that locks it may or may not tell logind that it is locked.
    func lockRequested(at path: String) -> LoginEvent? { sessions[path] == nil ? nil : .locked }

    /// The session is over.
    mutating func removed(_ path: String) -> LoginEvent? { sessions.removeValue(forKey: path) == nil ? nil : .ended }

    /// These are all sessions that there are.
    mutating func listed(_ paths: [String]) -> [LoginEvent] {
        sessions.keys.filter { !paths.contains($0) }.compactMap { removed($0) }
    }

    private func matters(_ session: Session) -> Bool {
        guard session.sessionClass.hasPrefix("user") else { return false }
        switch scope {
        case .user(let user): return session.userID == user && !session.seat.isEmpty
        case .seat(let seat): return session.seat == seat && ["x11", "wayland", "mir"].contains(session.type)
        }
    }
}
