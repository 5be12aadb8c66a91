import DBusTransport
import Glibc
import Synchronization

/// Finds out which app is behind each connection that calls the broker, by asking the bus (architecture, D11), and notices when it is gone.
///
/// A connection is identified at its first call, and the bus reports its end. It may give another app's name with each call, because one
/// process may be several apps.
final class Callers: Sendable {
    struct Caller: Sendable {
        /// The bus's unique name of the connection.
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

    /// Finds the app from the name that it claims and the credentials that the bus reports.
    typealias Identification =
        @Sendable (_ claimed: String?, DBusConnection.PeerCredentials) throws(DeviceRefusal) -> AppIdentity

    private struct Entry: Sendable {
        let lease: MatchRuleLease
        let credentials: DBusConnection.PeerCredentials
        var apps: [String?: AppIdentity] = [:]
    }

    private struct State {
        var entries: [String: Entry] = [:]
        /// How many calls are identifying a connection at the moment, by connection.
        var arriving: [String: Int] = [:]
        /// The connections of ``arriving`` that have left meanwhile: their identities are not kept, because no later event would remove them.
        var left: Set<String> = []
        /// The last report of an app's start or end. Each report waits for the one before it.
        var lastTold: Task<Void, Never>?
        /// The starts that are being reported. A call of an app waits until its start was reported.
        var starting: [String: Task<Void, Never>] = [:]
        /// Grows when the rules change, so that all connections have to be identified again.
        var generation = 0

        func isRunning(_ app: String) -> Bool {
            entries.values.contains { $0.apps.values.contains { $0.identifier == app } }
        }

        mutating func arrived(_ sender: String) {
            guard let count = arriving[sender] else { return }
            arriving[sender] = count > 1 ? count - 1 : nil
            if count == 1 { left.remove(sender) }
        }

        /// Reports the ends of apps, after all earlier reports.
        mutating func tell(_ apps: some Collection<String>, _ appEnded: @escaping @Sendable (String) async -> Void) {
            guard !apps.isEmpty else { return }
            for app in apps { starting[app] = nil }
            let (previous, apps) = (lastTold, Array(apps))
            lastTold = Task {
                await previous?.value
                for app in apps { await appEnded(app) }
            }
        }

        /// Reports the start of an app, after all earlier reports.
        mutating func tellStart(of app: String, _ appStarted: @escaping @Sendable () async -> Void) {
            let previous = lastTold
            let task = Task {
                await previous?.value
                await appStarted()
            }
            lastTold = task
            starting[app] = task
        }
    }

    private let connection: DBusConnection
    private let identify: Identification
    private let identifyRefused: @Sendable (_ claimed: String?, DBusConnection.PeerCredentials) -> AppIdentity?
    private let appStarted: @Sendable (AppIdentity, DBusConnection.PeerCredentials) async -> Void
    private let appEnded: @Sendable (_ app: String) async -> Void
    private let state = Locked(State())
    private let token = Locked<Observation?>(nil)

    /// How many app names one connection may use. A caller makes up names at no cost, and each becomes an app that may owe a cleanup.
    static let namesOfAConnection = 64

    /// - Parameters:
    ///   - identifyRefused: finds the identity of an app that may not take part; `nil` if it cannot be found.
    ///   - appStarted: an app has called for the first time since it was gone. Its calls wait until it returns.
    ///   - appEnded: the last connection of an app is gone. Called for one app at a time, and in order with `appStarted`.
    init(
        connection: DBusConnection,
        identify: @escaping Identification,
        identifyRefused:
            @escaping @Sendable (_ claimed: String?, DBusConnection.PeerCredentials) -> AppIdentity? = { _, _ in nil },
        appStarted: @escaping @Sendable (AppIdentity, DBusConnection.PeerCredentials) async -> Void,
        appEnded: @escaping @Sendable (_ app: String) async -> Void
    ) {
        self.connection = connection
        self.identify = identify
        self.identifyRefused = identifyRefused
        self.appStarted = appStarted
        self.appEnded = appEnded
        let token = connection.onSignal { [weak self] in self?.receive($0) }
        self.token.withLock { $0 = token }
    }

    /// The caller behind `sender`, which claims to be `claimed`, if it was identified before.
    func known(_ sender: String, claiming claimed: String?) -> Caller? {
        state.withLock { state in
            guard let entry = state.entries[sender], let app = entry.apps[claimed] else { return nil }
            return Caller(connection: sender, app: app, credentials: entry.credentials)
        }
    }

    /// The caller behind `sender`, which claims to be `claimed`.
    ///
    /// - Throws: ``DeviceRefusal`` where it may not take part; ``DBusError`` where it is gone.
    func caller(_ sender: String, claiming claimed: String?) async throws -> Caller {
        let (known, generation, starting) = state.withLock { state in
            let known = state.entries[sender]
            return (known, state.generation, known?.apps[claimed].flatMap { state.starting[$0.identifier] })
        }
        if let known, let app = known.apps[claimed] {
            await starting?.value
            return Caller(connection: sender, app: app, credentials: known.credentials)
        }
        guard known.map({ $0.apps.count < Self.namesOfAConnection }) ?? true else { throw DeviceRefusal.tooManyNames }
        let credentials = try await credentials(of: sender)
        let app = try identify(claimed, credentials)
        let start = state.withLock { state -> Task<Void, Never>? in
            // An identity that was found by rules which are over is not kept; the call under way may still have it. Nor is that of a
            // connection which is gone: what has no end must not begin.
            guard generation == state.generation, state.entries[sender] != nil else { return nil }
            if !state.isRunning(app.identifier) {
                state.tellStart(of: app.identifier) { [appStarted] in await appStarted(app, credentials) }
            }
            state.entries[sender]?.apps[claimed] = app
            return state.starting[app.identifier]
        }
        if let start {
            await start.value
            state.withLock { state in
                if state.starting[app.identifier] == start { state.starting[app.identifier] = nil }
            }
        }
        return Caller(connection: sender, app: app, credentials: credentials)
    }

    /// The app behind `sender` although it may not take part; `nil` if it cannot be found. The app does not count as running.
    ///
    /// - Throws: ``DBusError`` where it is gone.
    func refused(_ sender: String, claiming claimed: String?) async throws -> Caller? {
        let credentials = try await credentials(of: sender)
        return identifyRefused(claimed, credentials).map {
            Caller(connection: sender, app: $0, credentials: credentials)
        }
    }

    /// The identity of `sender`, whether or not it may take part.
    func credentials(of sender: String) async throws -> DBusConnection.PeerCredentials {
        let known = state.withLock { state -> Entry? in
            if state.entries[sender] == nil { state.arriving[sender, default: 0] += 1 }
            return state.entries[sender]
        }
        if let known { return known.credentials }
        defer { state.withLock { $0.arrived(sender) } }
        // The match rule comes first, so that the end of the connection cannot be missed.
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
            guard state.entries[sender] == nil, !state.left.contains(sender) else { return }
            state.entries[sender] = Entry(lease: lease, credentials: credentials)
        }
        return credentials
    }

    /// Whether the connection is still there, as far as the bus has told.
    func isConnected(_ caller: Caller) -> Bool { state.withLock { $0.entries[caller.connection] != nil } }

    /// The rules have changed: identifies every connection again. A connection that is the same app by the new rules goes on undisturbed.
    /// The others end, and start again with their next call.
    func identifyAnew() {
        let entries = state.withLock { state in
            state.generation += 1
            return state.entries
        }
        // Not under the lock: the rules have one of their own.
        let kept = entries.mapValues { entry in
            entry.apps.filter { claimed, app in
                (try? identify(claimed, entry.credentials))?.identifier == app.identifier
            }
        }
        state.withLock { state in
            let before = Self.apps(of: state.entries.values)
            for (sender, entry) in state.entries {
                // Connections identified since then were identified by the new rules.
                let known = entries[sender]?.apps ?? [:]
                state.entries[sender]?.apps = entry.apps.filter { claimed, _ in
                    known[claimed] == nil || kept[sender]?[claimed] != nil
                }
            }
            state.tell(before.subtracting(Self.apps(of: state.entries.values)), appEnded)
        }
    }

    /// The bus is gone, and all connections with it.
    func forgetAll() {
        let old = state.withLock { state -> [String: Entry] in
            state.tell(Self.apps(of: state.entries.values), appEnded)
            state.left.formUnion(state.arriving.keys)
            defer { state.entries = [:] }
            return state.entries
        }
        // The rules are given back outside the lock.
        withExtendedLifetime(old) {}
    }

    private static func apps(of entries: some Sequence<Entry>) -> Set<String> {
        Set(entries.flatMap { $0.apps.values.map(\.identifier) })
    }

    private func receive(_ message: borrowing DBusMessage) {
        guard message.isBusSignal("NameOwnerChanged"), let arguments = try? message.arguments(),
            arguments.count == 3, let name = arguments[0].stringValue, name.hasPrefix(":"),
            arguments[2].stringValue == ""
        else { return }
        let gone = state.withLock { state -> Entry? in
            if state.arriving[name] != nil { state.left.insert(name) }
            guard let gone = state.entries.removeValue(forKey: name) else { return nil }
            state.tell(Self.apps(of: [gone]).filter { !state.isRunning($0) }, appEnded)
            return gone
        }
        // The rule is given back outside the lock.
        withExtendedLifetime(gone) {}
    }
}
