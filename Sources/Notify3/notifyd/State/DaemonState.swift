package import NotifyCenter

/// The state of notifyd. Pure: it takes events, and returns the ``Action``s that the caller has to carry out.
package struct DaemonState: Sendable {
    package enum Action: Sendable, Hashable {
        /// Sends `Suspend` this many times.
        case suspend(connection: String, times: UInt32)
        case resume(connection: String)
        /// Tells a registrant to keep the states of these names, and to report them to the next notifyd.
        case keep(connection: String, [NameReport])
    }

    /// The name whose state tells the server's process and protocol, as on Darwin (Rules, a.4).
    static let versionName: NotificationName = "com.apple.system.notify.ipc_version"
    private static let version: UInt64 = 3

    package internal(set) var rules = AccessRules()
    private let limits: Limits
    private let otherLimits: Limits
    private let process: UInt32
    private let user: UInt32
    var names = NameTable()
    /// By the unique bus name of the connection.
    var clients: [String: Client] = [:]
    /// The user of each connection in ``clients``. Stored separately, because each call needs it several times, and
    /// copying a client is expensive.
    private(set) var users: [String: UInt32] = [:]
    /// The total amount that notifyd stores for all connections of a user. A user without any has no entry.
    private(set) var amounts: [UInt32: Amount] = [:]
    /// How often each process is suspended. A process that is not suspended has no entry.
    var suspensions: [UInt32: UInt32] = [:]
    private var lastNumber: UInt64 = 0
    /// The states that lost their keeper, by the connection that keeps them from now on.
    private var handovers: [String: [NameReport]] = [:]

    /// - Parameters:
    ///   - process: notifyd's process id.
    ///   - user: notifyd's user.
    ///   - limits: The limits of notifyd's own user, and of root.
    ///   - otherLimits: The limits of other users.
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

    /// Replaces the rules and the permanent names. Existing registrations stay.
    package mutating func configure(_ configuration: NotifyConfiguration) {
        rules = configuration.rules
        let own = (name: Self.versionName, state: UInt64(process) << 32 | Self.version)
        let permanent = configuration.permanentNames.map { (NotificationName($0.name), $0.state) }
        names.setPermanent(permanent.filter { $0.0 != own.name } + [own])
    }

    package func limits(ofUser user: UInt32) -> Limits { user == self.user || user == 0 ? limits : otherLimits }

    // MARK: Clients

    /// Adds a connection at its first call. Its process may be suspended already, through another connection.
    package mutating func arrived(_ connection: String, _ identity: Identity) -> [Action] {
        guard clients[connection] == nil else { return [] }
        lastNumber += 1
        clients[connection] = Client(identity: identity, number: lastNumber)
        users[connection] = identity.user
        guard let times = suspensions[identity.process] else { return [] }
        return [.suspend(connection: connection, times: times)]
    }

    /// Removes a connection and all its registrations.
    package mutating func gone(_ connection: String) {
        guard let client = clients.removeValue(forKey: connection) else { return }
        users[connection] = nil
        for name in client.names.keys { leave(name, connection) }
        account(client.identity.user, client.amount, Amount())
        if !clients.values.contains(where: { $0.identity.process == client.identity.process }) {
            suspensions[client.identity.process] = nil
        }
    }

    /// Checks whether a client may have this amount in place of its current one. Changes nothing.
    ///
    /// - Throws: `limitsExceeded`.
    func account(_ client: Client, _ amount: Amount) throws(Refusal) {
        let user = client.identity.user
        let total = (amounts[user] ?? Amount()) - client.amount + amount
        try limits(ofUser: user).check(connection: amount, user: total)
    }

    mutating func account(_ user: UInt32, _ before: Amount, _ after: Amount) {
        let amount = (amounts[user] ?? Amount()) - before + after
        amounts[user] = amount == Amount() ? nil : amount
    }

    // MARK: Registrations

    /// Adds registrations of these names. Ignores and returns the names that the connection may not register.
    ///
    /// - Throws: `limitsExceeded`; then no name was added.
    package mutating func enter(_ connection: String, _ entered: [String]) throws(Refusal) -> [String] {
        guard var client = clients.removeValue(forKey: connection) else { return [] }
        // The client is out of the dictionary during the change, so that it is changed in place and not copied.
        defer { clients[connection] = client }
        let refused = entered.filter { !mayEnter($0, client.identity) }
        let isRefused = Set(refused.map { NotificationName($0) })
        let added = Set(entered.lazy.map { NotificationName($0) }).filter {
            client.names[$0] == nil && !isRefused.contains($0)
        }
        guard !added.isEmpty else { return refused }
        let bytes = added.reduce(0) { $0 + $1.rawValue.utf8.count }
        let (before, amount) = (client.amount, client.amount + Amount(names: added.count, bytes: bytes))
        try account(client, amount)
        for name in added {
            client.names[name] = Client.NameDetails()
            enter(name, connection, client.identity)
        }
        client.amount = amount
        account(client.identity.user, before, amount)
        return refused
    }

    func mayEnter(_ name: String, _ identity: Identity) -> Bool {
        // `self.` names never leave their process.
        NameScope(name) != .process && rules.allows(.read, name, by: identity)
    }

    package mutating func leave(_ connection: String, _ left: [String]) {
        guard var client = clients.removeValue(forKey: connection) else { return }
        defer { clients[connection] = client }
        let before = client.amount
        for name in left.lazy.map({ NotificationName($0) }) {
            guard let details = client.names.removeValue(forKey: name) else { continue }
            client.amount = client.amount - Amount(ProcessReport(names: [client.report(name, details)]))
            leave(name, connection)
        }
        account(client.identity.user, before, client.amount)
    }

    // MARK: State

    /// Adds a registrant of a name. It becomes the keeper of the state if there is none and it may set the state.
    mutating func enter(_ name: NotificationName, _ connection: String, _ identity: Identity) {
        names.enter(name, connection)
        if !names.heirs(of: name).isEmpty, maySet(name.rawValue, identity) { handOver(name, to: connection) }
    }

    /// Removes a registrant of a name. If it kept the state, another registrant that may set the state becomes the
    /// keeper.
    mutating func leave(_ name: NotificationName, _ connection: String) {
        names.leave(name, connection)
        let heir = names.heirs(of: name).first { heir in
            clients[heir].map { maySet(name.rawValue, $0.identity) } ?? false
        }
        if let heir { handOver(name, to: heir) }
    }

    private mutating func handOver(_ name: NotificationName, to connection: String) {
        guard let state = names.handOver(name, to: connection) else { return }
        handovers[connection, default: []].append(NameReport(name: name.rawValue, state: state))
    }

    /// Returns the handovers since the last call, in one action for each connection.
    package mutating func takeHandovers() -> [Action] {
        defer { handovers = [:] }
        return handovers.map { .keep(connection: $0.key, $0.value) }
    }

    /// Sets the state of a name, and registers the name. A time in the future counts as `now`: otherwise no later state
    /// could replace this one.
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
        names.set(key, state, by: connection)
    }

    func maySet(_ name: String, _ identity: Identity) -> Bool {
        // The state of this name identifies the notifyd process, so no client may set it.
        NotificationName(name) != Self.versionName && rules.allows(.write, name, by: identity)
    }

    /// Returns the state of a name; 0 if the name has no registrations and is not permanent.
    ///
    /// - Throws: `notAuthorized`.
    package func state(of name: String, for reader: Identity) throws(Refusal) -> UInt64 {
        guard rules.allows(.read, name, by: reader) else {
            throw Refusal(.notAuthorized, "user \(reader.user) may not read the state of \(name.prefix(200))")
        }
        return names.state(of: NotificationName(name))
    }

    // MARK: Posts

    /// Checks whether notifyd may post a name for a caller.
    ///
    /// - Throws: `notAuthorized`, also for a name that every user may post. notifyd would be the sender of the post, so
    ///   the bus would not apply its policy for the caller.
    package func checkPost(_ name: String, by caller: Identity) throws(Refusal) {
        guard !rules.isOpen(.write, name) else {
            throw Refusal(.notAuthorized, "\(name.prefix(200)) is not reserved; post it yourself")
        }
        guard rules.allows(.write, name, by: caller) else {
            throw Refusal(.notAuthorized, "user \(caller.user) may not post \(name.prefix(200))")
        }
    }
}
