import NotifyCenter
package import NotifydProtocol

/// Everything that notifyd keeps, and its reactions to events. Pure: it returns the ``Action``s that its user has to carry out.
package struct DaemonState: Sendable {
    /// The work after an event, in order.
    package enum Action: Sendable, Hashable {
        /// Sends `Suspend` as often.
        case suspend(connection: String, times: UInt32)
        case resume(connection: String)
        /// Has a registrant keep the states of these names for the next notifyd.
        case keep(connection: String, [NameReport])
    }

    /// Darwin's name for a server's process and protocol (Rules, a.4).
    static let versionName: NotificationName = "com.apple.system.notify.ipc_version"
    private static let version: UInt64 = 3

    package internal(set) var rules = AccessRules()
    private let limits: Limits
    private let otherLimits: Limits
    private let process: UInt32
    private let user: UInt32
    var names = NameTable()
    /// By unique bus name.
    var clients: [String: Client] = [:]
    /// Of the ``clients``. Apart from them, because each call asks several times, and a copy of a client is dear.
    private(set) var users: [String: UInt32] = [:]
    /// What all connections of a user have notifyd keep; only users with any.
    private(set) var amounts: [UInt32: Amount] = [:]
    /// How often a process is suspended; only those that are.
    var suspensions: [UInt32: UInt32] = [:]
    private var lastNumber: UInt64 = 0
    /// The states whose keeper is gone, by the connection that keeps them from here on.
    private var handovers: [String: [NameReport]] = [:]

    /// - Parameters:
    ///   - process: notifyd's process id.
    ///   - user: notifyd's user.
    ///   - limits: for notifyd's own user, and root.
    ///   - otherLimits: for other users.
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

    package func limits(ofUser user: UInt32) -> Limits { user == self.user || user == 0 ? limits : otherLimits }

    // MARK: Clients

    /// A connection calls for the first time. Its process may be suspended already, by way of another connection.
    package mutating func arrived(_ connection: String, _ identity: Identity) -> [Action] {
        guard clients[connection] == nil else { return [] }
        lastNumber += 1
        clients[connection] = Client(identity: identity, number: lastNumber)
        users[connection] = identity.user
        guard let times = suspensions[identity.process] else { return [] }
        return [.suspend(connection: connection, times: times)]
    }

    /// A connection is gone, with everything that it had.
    package mutating func gone(_ connection: String) {
        guard let client = clients.removeValue(forKey: connection) else { return }
        users[connection] = nil
        for name in client.names.keys { leave(name, connection) }
        account(client.identity.user, client.amount, Amount())
        if !clients.values.contains(where: { $0.identity.process == client.identity.process }) {
            suspensions[client.identity.process] = nil
        }
    }

    /// What a connection has notifyd keep has changed.
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

    /// A connection has registrations of these names. Names that it may not have are ignored, and returned.
    ///
    /// - Throws: `limitsExceeded`; then nothing was entered.
    package mutating func enter(_ connection: String, _ entered: [String]) throws(Refusal) -> [String] {
        guard var client = clients.removeValue(forKey: connection) else { return [] }
        // Out of the dictionary meanwhile, so that it is changed in place.
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

    /// A connection has no registrations of these names any more.
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

    /// A connection has registrations of a name. It keeps the state if no other registrant does.
    mutating func enter(_ name: NotificationName, _ connection: String, _ identity: Identity) {
        names.enter(name, connection)
        if !names.heirs(of: name).isEmpty, maySet(name.rawValue, identity) { handOver(name, to: connection) }
    }

    /// A connection has no registrations of a name any more. If it kept the state, another registrant that may set the
    /// state keeps it.
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

    /// Returns the states to hand over since the last time, in one action for each connection.
    package mutating func takeHandovers() -> [Action] {
        defer { handovers = [:] }
        return handovers.map { .keep(connection: $0.key, $0.value) }
    }

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
        names.set(key, state, by: connection)
    }

    func maySet(_ name: String, _ identity: Identity) -> Bool {
        // Its state says which process notifyd is, so nobody may set it.
        NotificationName(name) != Self.versionName && rules.allows(.write, name, by: identity)
    }

    /// The state of a name; 0 where nobody has registrations of it.
    ///
    /// - Throws: `notAuthorized`.
    package func state(of name: String, for reader: Identity) throws(Refusal) -> UInt64 {
        guard rules.allows(.read, name, by: reader) else {
            throw Refusal(.notAuthorized, "user \(reader.user) may not read the state of \(name.prefix(200))")
        }
        return names.state(of: NotificationName(name))
    }

    // MARK: Posts

    /// Decides whether to post for a caller.
    ///
    /// - Throws: `notAuthorized`; also for a name that everybody may post: with notifyd as the sender, the bus's policy for the caller would
    ///   not hold.
    package func checkPost(_ name: String, by caller: Identity) throws(Refusal) {
        guard !rules.isOpen(.write, name) else {
            throw Refusal(.notAuthorized, "\(name.prefix(200)) is not reserved; post it yourself")
        }
        guard rules.allows(.write, name, by: caller) else {
            throw Refusal(.notAuthorized, "user \(caller.user) may not post \(name.prefix(200))")
        }
    }
}
