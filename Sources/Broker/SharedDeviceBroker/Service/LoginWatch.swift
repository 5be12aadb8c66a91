import Basics
import BrokerCore
import DBus
import FoundationEssentials
import Logging
import NotifyCenter
import Synchronization

/// Follows logind's sessions over D-Bus, and asks logind to end sessions. logind may start later.
final class LoginWatch: Sendable {
    private static let service = "org.freedesktop.login1"
    private static let manager = "/org/freedesktop/login1"
    private static let managerInterface = "org.freedesktop.login1.Manager"
    private static let sessionInterface = "org.freedesktop.login1.Session"
    private static let properties = "org.freedesktop.DBus.Properties"
    /// The pause before the next attempt to connect to an unavailable bus.
    private static let retryPause = Duration.seconds(30)
    /// The pause before logind is asked again: when it did not respond, and while any session exists. logind sends no
    /// signal for a session that is closing while some of its processes remain.
    private static let answerPause = Duration.seconds(5)
    /// The timeout of a call to logind.
    private static let patience = Duration.seconds(10)

    private enum Word: Sendable {
        /// All sessions have to be listed again: logind has changed, signals may be lost, or there is a new session.
        case doubt
        case lock(String)
        case locked(String, Bool)
        case removed(String)
        case shutdown(Bool)
    }

    /// The queue of messages from logind, in order. It is bounded: a message that does not fit becomes a `doubt`, and
    /// several doubts are merged into one.
    private final class Words: Sendable {
        let stream: AsyncStream<Word>
        private let continuation: AsyncStream<Word>.Continuation
        private let state = Locked(State())

        private struct State {
            var waiting = 0
            /// How many more words to take before all sessions are listed. Those words are older than the doubt.
            var doubtAfter: Int?
        }

        init() { (stream, continuation) = AsyncStream.makeStream(bufferingPolicy: .bufferingOldest(256)) }

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

        /// Whether all sessions have to be listed now. Call it once after each word.
        func takeDoubt() -> Bool {
            state.withLock { state in
                state.waiting -= 1
                guard let left = state.doubtAfter.map({ $0 - 1 }) else { return false }
                state.doubtAfter = left > 0 ? left : nil
                return left <= 0
            }
        }
    }

    struct Settings: Sendable, Equatable {
        var bus: Bus
        var scope: LoginSessions.Scope
        /// Whether to delay a shutdown until ``allowShutdown()``.
        var delaysShutdown: Bool
    }

    let settings: Settings
    private let log: Logger
    private let heard: @Sendable (Event) -> Void
    private let connection = Locked<DBusConnection?>(nil)
    /// The connection of logind; `nil` if logind is not running.
    private let owner = Locked<String?>(nil)
    private let delay: ShutdownDelay?
    private let task = Locked<Task<Void, Never>?>(nil)

    /// - Parameter heard: Receives the events at the seat, one at a time, until ``stop()``.
    init(_ settings: Settings, log: Logger, heard: @escaping @Sendable (Event) -> Void) {
        (self.settings, self.log, self.heard) = (settings, log, heard)
        delay = settings.delaysShutdown ? ShutdownDelay(log: log) : nil
        task.withLock { $0 = Task { await follow() } }
    }

    func stop() { task.withLock { $0 }?.cancel() }

    /// Asks logind to end these sessions. Returns the problem; `nil` if logind accepted all requests.
    func end(_ sessions: [String]) async -> String? {
        guard let connection = connection.withLock({ $0 }) else { return "there is no connection to logind's bus" }
        var problem: String?
        for session in sessions {
            do throws(DBusError) {
                _ = try await connection.call(Self.call("TerminateSession", [.string(session)]), timeout: Self.patience)
            } catch {
                problem = Self.problem(error) ?? problem
            }
        }
        return problem
    }

    func allowShutdown() { delay?.release() }

    /// The reason why logind does not end a session; `nil` if the session no longer exists.
    private static func problem(_ error: DBusError) -> String? {
        switch error.name {
        case "org.freedesktop.login1.NoSuchSession": nil
        case "org.freedesktop.DBus.Error.AccessDenied", "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired":
            "logind does not permit it: \(error.message). Let the broker's user do it: install "
                + "50-shared-device-login.rules in /etc/polkit-1/rules.d, see shared-device-broker(8)"
        default: "\(error)"
        }
    }

    private func follow() async {
        var hasTold = false
        while !Task.isCancelled {
            do throws(DBusError) {
                let connection = try DBusConnection.whenThere(settings.bus)
                try await connection.connect()
                self.connection.withLock { $0 = connection }
                return try await follow(connection)
            } catch {
                if !hasTold {
                    let details: Logger.Metadata = ["bus": "\(settings.bus)", "reason": "\(error)"]
                    log.info("login sessions are not followed", metadata: details)
                }
                hasTold = true
                heard(.seat(nil))
            }
            try? await Task.sleep(for: Self.retryPause)
        }
    }

    private func follow(_ connection: DBusConnection) async throws(DBusError) {
        let words = Words()
        owner.withLock { $0 = nil }
        let tokens = [
            connection.onSignal { [weak self] in self?.receive($0, words) },
            try connection.onEvent { if case .restored = $0 { words.add(.doubt) } },
        ]
        let bus = "org.freedesktop.DBus"
        let ownerRule = MatchRule(signalFrom: bus, interface: bus, member: "NameOwnerChanged", argument0: Self.service)
        let leases = [
            try await connection.addMatch(ownerRule),
            try await connection.addMatch(MatchRule(signalFrom: Self.service)),
        ]
        defer { withExtendedLifetime((tokens, leases)) {} }
        words.add(.doubt)
        var sessions = LoginSessions(scope: settings.scope)
        var isKnown: Bool?
        var told: Seat?
        var nextLook: Task<Void, Never>?
        defer { nextLook?.cancel() }
        for await word in words.stream {
            var events: [LoginEvent?] = []
            switch word {
            case .doubt: break
            case .lock(let path): events.append(sessions.lockRequested(at: path))
            case .locked(let path, let isLocked): events.append(sessions.setLocked(isLocked, at: path))
            case .removed(let path): events.append(sessions.removed(path))
            case .shutdown(true): events.append(.shutdown)
            case .shutdown(false):
                delay?.renew()
                events.append(.shutdownCancelled)
                // The next list takes the lock again.
                words.add(.doubt)
            }
            if words.takeDoubt() {
                let isThere = await list(connection, &sessions, &events)
                if isThere != isKnown {
                    log.info(isThere ? "following login sessions" : "no logind: login sessions are not followed")
                }
                isKnown = isThere
                nextLook?.cancel()
                // Ask again while there are sessions. Also if logind is running but did not respond in time: otherwise
                // its sessions would never be noticed.
                if isThere ? !sessions.isEmpty : owner.withLock({ $0 }) != nil {
                    nextLook = Task {
                        do { try await Task.sleep(for: Self.answerPause) } catch { return }
                        words.add(.doubt)
                    }
                }
                if isThere {
                    await delay?.take(connection)
                } else {
                    told = nil
                    heard(.seat(nil))
                }
            }
            // The seat comes first: otherwise the login could sign a user in before the seat is known to be locked.
            if isKnown == true, sessions.seat != told {
                told = sessions.seat
                heard(.seat(sessions.seat))
            }
            for case .some(let event) in events { heard(.login(event)) }
        }
    }

    // MARK: What logind says

    private func receive(_ message: borrowing DBusMessage, _ words: Words) {
        if message.isBusSignal("NameOwnerChanged") {
            guard let arguments = try? message.arguments(), arguments.count == 3,
                arguments[0].stringValue == Self.service
            else { return }
            let name = arguments[2].stringValue.flatMap { $0.isEmpty ? nil : $0 }
            owner.withLock { $0 = name }
            words.add(.doubt)
        } else if let sender = message.sender, sender == owner.withLock({ $0 }), let word = Self.word(message) {
            words.add(word)
        }
    }

    private static func word(_ message: borrowing DBusMessage) -> Word? {
        guard let path = message.path, let member = message.member, let arguments = try? message.arguments() else {
            return nil
        }
        switch (message.interface, member) {
        case (sessionInterface, "Lock"): return .lock(path)
        case (properties, "PropertiesChanged"):
            guard arguments.count == 3, arguments[0].stringValue == sessionInterface else { return nil }
            let changed = arguments[1].fieldsValue ?? [:]
            // The session in the foreground has changed, or a session is closing.
            if changed["Active"] != nil || changed["State"] != nil { return .doubt }
            if let isLocked = changed["LockedHint"]?.booleanValue { return .locked(path, isLocked) }
            return arguments[2].stringsValue?.isEmpty == false ? .doubt : nil
        case (managerInterface, "SessionNew"): return .doubt
        case (managerInterface, "SessionRemoved"):
            return arguments.count == 2 ? arguments[1].stringValue.map(Word.removed) : nil
        case (managerInterface, "PrepareForShutdown"): return arguments.first?.booleanValue.map(Word.shutdown)
        default: return nil
        }
    }

    /// Asks for all sessions. Returns whether logind responded.
    private func list(
        _ connection: DBusConnection,
        _ sessions: inout LoginSessions,
        _ events: inout [LoginEvent?]
    ) async -> Bool {
        do throws(DBusError) {
            let name = try await connection.owner(of: Self.service)
            owner.withLock { $0 = name }
            guard name != nil else { return false }
            // The members of an entry: id, user id, user name, seat, object path.
            let answer = try await connection.call(Self.call("ListSessions"), timeout: Self.patience)
            let paths = (answer.first?.elementsValue ?? []).compactMap { entry -> String? in
                guard case .structure(let members) = entry, members.count >= 5 else { return nil }
                return members[4].stringValue
            }
            events += sessions.listed(paths)
            for path in paths {
                guard let session = try await Self.look(connection, path) else { continue }
                events.append(sessions.found(session, at: path))
            }
            return true
        } catch {
            return false
        }
    }

    /// Asks about one session. Returns `nil` if the session has ended, which a signal also reports.
    private static func look(
        _ connection: DBusConnection,
        _ path: String
    ) async throws(DBusError) -> LoginSessions.Session? {
        do throws(DBusError) {
            let question = try call("GetAll", [.string(sessionInterface)], path: path, interface: properties)
            let answer = try await connection.call(question, timeout: patience)
            return LoginSessions.Session(answer.first?.fieldsValue ?? [:])
        } catch {
            guard error.code == .refused else { throw error }
            return nil
        }
    }

    static func call(
        _ member: String,
        _ arguments: [DBusValue] = [],
        path: String = manager,
        interface: String = managerInterface
    ) throws(DBusError) -> DBusMessage {
        try DBusMessage.methodCall(
            destination: service,
            path: path,
            interface: interface,
            member: member,
            arguments: arguments
        )
    }
}

extension LoginSessions.Session {
    /// `nil` if a property of `org.freedesktop.login1.Session` that identifies the user or seat is missing.
    fileprivate init?(_ properties: [String: DBusValue]) {
        guard case .structure(let user)? = properties["User"], case .structure(let seat)? = properties["Seat"],
            let userID = user.first?.unsignedValue.flatMap(UInt32.init(exactly:)), let seat = seat.first?.stringValue,
            let type = properties["Type"]?.stringValue, let sessionClass = properties["Class"]?.stringValue
        else { return nil }
        let began = properties["Timestamp"]?.unsignedValue ?? 0
        self.init(
            identifier: properties["Id"]?.stringValue ?? "",
            userID: userID,
            userName: properties["Name"]?.stringValue ?? "\(userID)",
            seat: seat,
            type: type,
            sessionClass: sessionClass,
            began: Date(timeIntervalSince1970: Double(began) / 1_000_000),
            beganAwake: properties["TimestampMonotonic"]?.unsignedValue.map { .microseconds(Int64(clamping: $0)) },
            isActive: properties["Active"]?.booleanValue ?? false,
            isLocked: properties["LockedHint"]?.booleanValue ?? false,
            isRemote: properties["Remote"]?.booleanValue ?? false,
            isClosing: properties["State"]?.stringValue == "closing"
        )
    }
}

/// logind's inhibitor lock “delay”: a shutdown waits for it, up to `InhibitDelayMaxSec` (5 seconds by default).
final class ShutdownDelay: Sendable {
    private struct State {
        var lock: DBusDescriptor?
        /// A released lock is not taken again, because a shutdown may be in progress.
        var isReleased = false
        var problem: String?
    }

    private let state = Locked(State())
    private let log: Logger

    init(log: Logger) { self.log = log }

    /// Takes the lock, unless it is held or was released.
    func take(_ connection: DBusConnection) async {
        guard state.withLock({ $0.lock == nil && !$0.isReleased }) else { return }
        var (lock, problem): (DBusDescriptor?, String?) = (nil, nil)
        do throws(DBusError) {
            let reason = "apps delete the data of the person who is logged in"
            let words = ["shutdown", "shared-device-broker", reason, "delay"].map(DBusValue.string)
            let answer = try await connection.call(LoginWatch.call("Inhibit", words))
            if case .descriptor(let descriptor)? = answer.first { lock = descriptor }
        } catch {
            problem = "\(error)"
        }
        let isNews = state.withLock { state in
            // A lock that arrives after the release is dropped at once.
            state.lock = state.isReleased ? nil : lock
            defer { state.problem = problem }
            return state.problem != problem
        }
        if let problem, isNews {
            log.warning("a shutdown does not wait for the cleanup", metadata: ["reason": "\(problem)"])
        }
    }

    func release() {
        let lock = state.withLock { state in
            defer { (state.lock, state.isReleased) = (nil, true) }
            return state.lock
        }
        withExtendedLifetime(lock) {}
    }

    /// The shutdown was cancelled: delay the next one, too.
    func renew() { state.withLock { $0.isReleased = false } }
}
