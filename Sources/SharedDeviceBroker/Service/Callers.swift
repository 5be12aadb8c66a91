import DBusTransport
import Glibc
import Synchronization

/// Who is behind the connections that call the broker, by the bus's word (architecture, D11), and until when.
///
/// A connection is identified at its first call; the bus tells when it is gone. What it calls itself may differ from call to call, because
/// one process may be several apps.
final class Callers: Sendable {
    struct Caller: Sendable {
        /// Its connection, by the bus's name of it.
        let connection: String
        let app: AppIdentity
        let credentials: DBusConnection.PeerCredentials

        /// Whether it may do what administrators may.
        var isAdministrator: Bool { credentials.userID == 0 || credentials.userID == geteuid() }

        /// For the log.
        var program: String {
            let process = credentials.processID.map { "pid \($0)" } ?? "pid unknown"
            return "\(credentials.executable ?? "program unknown"), \(process), uid \(credentials.userID)"
        }
    }

    /// Tells an app by what it calls itself and what the bus says of it.
    typealias Identification =
        @Sendable (_ claimed: String?, DBusConnection.PeerCredentials) throws(DeviceRefusal) -> AppIdentity

    private struct Entry: Sendable {
        let lease: MatchRuleLease
        let credentials: DBusConnection.PeerCredentials
        var apps: [String?: AppIdentity] = [:]
    }

    private struct State {
        var entries: [String: Entry] = [:]
        /// Grows when all identities are to be found anew.
        var generation = 0

        func isRunning(_ app: String) -> Bool {
            entries.values.contains { $0.apps.values.contains { $0.identifier == app } }
        }
    }

    private let connection: DBusConnection
    private let identify: Identification
    private let appStarted: @Sendable (AppIdentity) async -> Void
    private let appEnded: @Sendable (_ app: String) -> Void
    private let state = Locked(State())
    private let token = Locked<HandlerToken?>(nil)

    /// - Parameters:
    ///   - appStarted: an app has called for the first time since it was gone. The call waits until it returns.
    ///   - appEnded: the last connection of an app is gone. On the reading thread.
    init(
        connection: DBusConnection,
        identify: @escaping Identification,
        appStarted: @escaping @Sendable (AppIdentity) async -> Void,
        appEnded: @escaping @Sendable (_ app: String) -> Void
    ) {
        self.connection = connection
        self.identify = identify
        self.appStarted = appStarted
        self.appEnded = appEnded
        let token = connection.onSignal { [weak self] in self?.receive($0) }
        self.token.withLock { $0 = token }
    }

    /// Who `sender` is, which calls itself `claimed`.
    ///
    /// - Throws: ``DeviceRefusal`` where it may not take part; ``DBusError`` where it is gone.
    func caller(_ sender: String, claiming claimed: String?) async throws -> Caller {
        let (known, generation) = state.withLock { ($0.entries[sender], $0.generation) }
        if let known, let app = known.apps[claimed] {
            return Caller(connection: sender, app: app, credentials: known.credentials)
        }
        let credentials = try await credentials(of: sender)
        let app = try identify(claimed, credentials)
        let isFirst = state.withLock { state -> Bool in
            let isFirst = !state.isRunning(app.identifier)
            // An identity that was found by rules which are over is not kept; the call under way may still have it.
            if generation == state.generation { state.entries[sender]?.apps[claimed] = app }
            return isFirst
        }
        if isFirst { await appStarted(app) }
        return Caller(connection: sender, app: app, credentials: credentials)
    }

    /// Who `sender` is, whether it may take part or not.
    func credentials(of sender: String) async throws -> DBusConnection.PeerCredentials {
        if let known = state.withLock({ $0.entries[sender] }) { return known.credentials }
        // First the rule, so that its end cannot be missed.
        let lease = try await connection.addMatch(
            MatchRule(
                signalFrom: "org.freedesktop.DBus",
                interface: "org.freedesktop.DBus",
                member: "NameOwnerChanged",
                argument0: sender
            )
        )
        let credentials = try await connection.credentials(of: sender)
        state.withLock { state in
            if state.entries[sender] == nil { state.entries[sender] = Entry(lease: lease, credentials: credentials) }
        }
        return credentials
    }

    /// Whether the connection is still there, as far as the bus has told.
    func isConnected(_ caller: Caller) -> Bool { state.withLock { $0.entries[caller.connection] != nil } }

    /// The rules have changed: everybody is identified anew at the next call.
    func forgetIdentities() {
        let old = state.withLock { state -> [String: Entry] in
            defer {
                state.generation += 1
                for sender in state.entries.keys { state.entries[sender]?.apps = [:] }
            }
            return state.entries
        }
        for app in Self.apps(of: old.values) { appEnded(app) }
    }

    /// The bus is gone, and all connections with it.
    func forgetAll() {
        let old = state.withLock { state -> [String: Entry] in
            defer { state.entries = [:] }
            return state.entries
        }
        for app in Self.apps(of: old.values) { appEnded(app) }
    }

    private static func apps(of entries: some Sequence<Entry>) -> Set<String> {
        Set(entries.flatMap { $0.apps.values.map(\.identifier) })
    }

    private func receive(_ message: borrowing DBusMessage) {
        guard message.isBusSignal("NameOwnerChanged"), let arguments = try? message.arguments(),
            arguments.count == 3, let name = arguments[0].stringValue, name.hasPrefix(":"),
            arguments[2].stringValue == ""
        else { return }
        let (gone, ended) = state.withLock { state -> (Entry?, [String]) in
            guard let gone = state.entries.removeValue(forKey: name) else { return (nil, []) }
            return (gone, Self.apps(of: [gone]).filter { !state.isRunning($0) })
        }
        // The rule is given back outside the lock.
        withExtendedLifetime(gone) {}
        for app in ended { appEnded(app) }
    }
}
