import NotifyCenter
package import NotifydProtocol

/// Everything that notifyd keeps, and its reactions to events. Pure: it returns the ``Action``s that its user has to carry out.
package struct DaemonState: Sendable {
    /// The work after an event, in order.
    package enum Action: Sendable, Hashable {
        case watch(id: UInt64, path: String, flags: UInt32, as: Identity)
        case unwatch(id: UInt64)
        /// Sends `Suspend` as often.
        case suspend(connection: String, times: UInt32)
        case resume(connection: String)
        /// Sends `Changed`.
        case tell(connection: String, token: Int32)
    }

    /// Darwin's name for a server's process and protocol (Rules, a.4).
    static let versionName: NotificationName = "com.apple.system.notify.ipc_version"
    private static let version: UInt64 = 3

    package internal(set) var rules = AccessRules()
    package let limits: Limits
    private let otherLimits: Limits
    private let process: UInt32
    private let user: UInt32
    var names = NameTable()
    /// By unique bus name.
    var clients: [String: Client] = [:]
    /// How often a process is suspended; only those that are.
    var suspensions: [UInt32: UInt32] = [:]
    /// The connection and token that are told when a path changes.
    var watched: [UInt64: (connection: String, token: Int32)] = [:]
    /// States that ended with the last known registration of their names, while some processes have not reported yet; `nil` when all have.
    var orphans: [NotificationName: Orphan]? = [:]
    private var lastWatch: UInt64 = 0

    struct Orphan: Sendable {
        let state: StateReport
        /// The connection whose registration was the last.
        let connection: String
    }

    /// - Parameters:
    ///   - process: notifyd's process id.
    ///   - user: notifyd's user.
    ///   - limits: for connections of notifyd's own user.
    ///   - otherLimits: for connections of other users.
    package init(
        process: UInt32,
        user: UInt32,
        configuration: NotifyConfiguration = .init(),
        limits: Limits = Limits(),
        otherLimits: Limits = .others
    ) {
        self.process = process
        self.user = user
        self.limits = limits
        self.otherLimits = otherLimits
        configure(configuration)
    }

    /// Sets other rules and permanent names. Existing registrations stay.
    package mutating func configure(_ configuration: NotifyConfiguration) {
        rules = configuration.rules
        let own = (name: Self.versionName, state: UInt64(process) << 32 | Self.version)
        let permanent = configuration.permanentNames.map { (NotificationName($0.name), $0.state) }
        names.setPermanent(permanent.filter { $0.0 != own.name } + [own])
    }

    /// The limits of a connection of this user.
    func limits(of identity: Identity) -> Limits { identity.user == user ? limits : otherLimits }

    mutating func takeWatchID() -> UInt64 {
        lastWatch += 1
        return lastWatch
    }

    // MARK: Clients

    /// A connection calls for the first time. Its process may be suspended already, by way of another connection.
    package mutating func arrived(_ connection: String, _ identity: Identity) -> [Action] {
        guard clients[connection] == nil else { return [] }
        clients[connection] = Client(identity: identity)
        guard let times = suspensions[identity.process] else { return [] }
        return [.suspend(connection: connection, times: times)]
    }

    /// A connection is gone, with everything that it had.
    package mutating func gone(_ connection: String) -> [Action] {
        guard let client = clients.removeValue(forKey: connection) else { return [] }
        for name in client.names.keys { leave(name, connection) }
        if !clients.values.contains(where: { $0.identity.process == client.identity.process }) {
            suspensions[client.identity.process] = nil
        }
        return client.monitors.values.sorted { $0.id < $1.id }.map { monitor in
            watched[monitor.id] = nil
            return .unwatch(id: monitor.id)
        }
    }

    // MARK: Registrations

    /// A connection has registrations of these names. Names that it may not have are ignored, and returned.
    ///
    /// - Throws: `limitsExceeded`; then nothing was entered.
    package mutating func enter(_ connection: String, _ entered: [String]) throws(Refusal) -> [String] {
        guard var client = clients.removeValue(forKey: connection) else { return [] }
        // Out of the dictionary meanwhile, so that it is changed in place.
        defer { clients[connection] = client }
        let refused = entered.filter { !rules.allows(.read, $0, by: client.identity) || isPrivate($0) }
        let isRefused = Set(refused.map { NotificationName($0) })
        let added = Set(entered.lazy.map { NotificationName($0) }).filter {
            client.names[$0] == nil && !isRefused.contains($0)
        }
        let bytes = added.reduce(client.nameBytes) { $0 + $1.rawValue.utf8.count }
        try limits(of: client.identity).check(names: client.names.count + added.count, bytes: bytes)
        for name in added {
            client.names[name] = Client.NameDetails()
            names.enter(name)
        }
        client.nameBytes = bytes
        return refused
    }

    /// A `self.` name, which never leaves its process.
    private func isPrivate(_ name: String) -> Bool { NameScope(name) == .process }

    /// A connection has no registrations of these names any more. This also ends the monitoring of their paths.
    package mutating func leave(_ connection: String, _ left: [String]) -> [Action] {
        guard var client = clients.removeValue(forKey: connection) else { return [] }
        defer { clients[connection] = client }
        var gone: Set<NotificationName> = []
        for name in left.lazy.map({ NotificationName($0) }) where client.names.removeValue(forKey: name) != nil {
            client.nameBytes -= name.rawValue.utf8.count
            leave(name, connection)
            gone.insert(name)
        }
        guard !gone.isEmpty, !client.monitors.isEmpty else { return [] }
        let ended = client.monitors.filter { gone.contains($0.value.name) }.sorted { $0.key < $1.key }
        return ended.map { token, monitor in
            client.monitors[token] = nil
            watched[monitor.id] = nil
            return .unwatch(id: monitor.id)
        }
    }

    /// A connection has no registrations of the name any more.
    private mutating func leave(_ name: NotificationName, _ connection: String) {
        guard let state = names.leave(name), orphans != nil else { return }
        orphans?[name] = Orphan(state: state, connection: connection)
    }

    /// All processes have reported their registrations: the states of other names are gone.
    package mutating func gathered() { orphans = nil }

    // MARK: State

    /// Sets the state of a name and enters it. A time in the future counts as `now`, or its value would stay for good.
    ///
    /// - Throws: `notAuthorized`, `limitsExceeded`.
    package mutating func setState(
        _ connection: String,
        _ name: String,
        _ state: StateReport,
        now: UInt64
    ) throws(Refusal) {
        guard let client = clients[connection] else { return }
        guard maySet(name, client.identity) else {
            throw Refusal(.notAuthorized, "user \(client.identity.user) may not set the state of \(name.prefix(200))")
        }
        guard try enter(connection, [name]).isEmpty else {
            throw Refusal(.notAuthorized, "user \(client.identity.user) may not register for \(name.prefix(200))")
        }
        let key = NotificationName(name)
        let state = StateReport(value: state.value, time: min(state.time, now))
        clients[connection]?.names[key]?.state = state
        names.set(key, state)
    }

    func maySet(_ name: String, _ identity: Identity) -> Bool {
        // Its state says which process notifyd is, so nobody may set it.
        NotificationName(name) != Self.versionName && rules.allows(.write, name, by: identity)
    }

    /// The state of a name; 0 where nobody has registrations of it.
    package func state(of name: String) -> UInt64 { names.state(of: NotificationName(name)) }
}
