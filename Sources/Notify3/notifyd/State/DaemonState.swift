import NotifyCenter

/// The state of notifyd. Pure: it takes events, and returns the ``Action``s that the caller has to carry out.
struct DaemonState: Sendable {
    enum Action: Sendable, Hashable {
        /// Sends `Suspend` this many times.
        case suspend(connection: String, times: UInt32)
        case resume(connection: String)
        /// Tells a registrant to keep the states of these names, and to report them to the next notifyd.
        case keep(connection: String, [NameReport])
    }

    /// The name whose state contains notifyd's process id and the version of its protocol, as on Darwin (Rules, a.4).
    static let versionName: NotificationName = "com.apple.system.notify.ipc_version"
    private static let version: UInt64 = 3

    private(set) var rules = AccessRules()
    private let limits: Limits
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

    /// - Parameter limits: The limits of notifyd's own user, and of root.
    init(process: UInt32, user: UInt32, configuration: NotifyConfiguration = .init(), limits: Limits = Limits()) {
        (self.process, self.user, self.limits) = (process, user, limits)
        configure(configuration)
    }

    /// Replaces the rules and the permanent names. Existing registrations stay.
    mutating func configure(_ configuration: NotifyConfiguration) {
        rules = configuration.rules
        let own = (name: Self.versionName, state: UInt64(process) << 32 | Self.version)
        let permanent = configuration.permanentNames.map { (NotificationName($0.name), $0.state) }
        names.setPermanent(permanent.filter { $0.0 != own.name } + [own])
    }

    func limits(ofUser user: UInt32) -> Limits { user == self.user || user == 0 ? limits : .others }

    // MARK: Clients

    /// Adds a connection at its first call. Its process may be suspended already, through another connection.
    mutating func arrived(_ connection: String, _ identity: Identity) -> [Action] {
        guard clients[connection] == nil else { return [] }
        lastNumber += 1
        clients[connection] = Client(identity: identity, number: lastNumber)
        users[connection] = identity.user
        guard let times = suspensions[identity.process] else { return [] }
        return [.suspend(connection: connection, times: times)]
    }

    /// Removes a connection and all its registrations.
    mutating func gone(_ connection: String) {
        guard let client = clients.removeValue(forKey: connection) else { return }
        users[connection] = nil
        for name in client.names.keys { leave(name, connection) }
        account(client.identity.user, client.amount, Amount())
        if !clients.values.contains(where: { $0.identity.process == client.identity.process }) {
            suspensions[client.identity.process] = nil
        }
    }

    /// Throws `limitsExceeded` if a client may not have this amount in place of its current one. Changes nothing.
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

    /// Adds registrations of these names. Ignores and returns the names that the connection may not register. Throws
    /// `limitsExceeded`; then no name was added.
    mutating func enter(_ connection: String, _ entered: [String]) throws(Refusal) -> [String] {
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
            client.names[name] = NameReport(name: name.rawValue)
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

    mutating func leave(_ connection: String, _ left: [String]) {
        guard var client = clients.removeValue(forKey: connection) else { return }
        defer { clients[connection] = client }
        let before = client.amount
        for name in left.lazy.map({ NotificationName($0) }) {
            guard let report = client.names.removeValue(forKey: name) else { continue }
            client.amount = client.amount - Amount(ProcessReport(names: [report]))
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
    mutating func takeHandovers() -> [Action] {
        defer { handovers = [:] }
        return handovers.map { .keep(connection: $0.key, $0.value) }
    }

    /// Sets the state of a name, and registers the name. A time in the future counts as `now`: otherwise no later state
    /// could replace this one. Throws `notAuthorized` and `limitsExceeded`.
    mutating func setState(_ connection: String, _ name: String, _ state: StateReport, now: UInt64) throws(Refusal) {
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

    /// Returns the state of a name; 0 if the name has no registrations and is not permanent. Throws `notAuthorized`.
    func state(of name: String, for reader: Identity) throws(Refusal) -> UInt64 {
        guard rules.allows(.read, name, by: reader) else {
            throw Refusal(.notAuthorized, "user \(reader.user) may not read the state of \(name.prefix(200))")
        }
        return names.state(of: NotificationName(name))
    }

    // MARK: Posts

    /// Throws `notAuthorized` if notifyd may not post a name for a caller, also for a name that every user may post.
    /// notifyd would be the sender of the post, so the bus would not apply its policy for the caller.
    func checkPost(_ name: String, by caller: Identity) throws(Refusal) {
        guard !rules.isOpen(.write, name) else {
            throw Refusal(.notAuthorized, "\(name.prefix(200)) is not reserved; post it yourself")
        }
        guard rules.allows(.write, name, by: caller) else {
            throw Refusal(.notAuthorized, "user \(caller.user) may not post \(name.prefix(200))")
        }
    }
}

extension DaemonState {
    /// Replaces the registrations and states of a connection by those in its report. Ignores and returns the names that
    /// it may not register. Ignores states that it may not set. Throws `limitsExceeded`; then nothing has changed.
    mutating func reported(_ connection: String, _ report: ProcessReport, now: UInt64) throws(Refusal) -> [String] {
        guard let client = clients[connection] else { return [] }
        let identity = client.identity
        // A repeated name counts twice, at the expense of the reporting connection.
        let kept = ProcessReport(names: report.names.filter { mayEnter($0.name, identity) })
        let amount = Amount(kept)
        try account(client, amount)
        if !client.hasReported { learnSuspensions(of: identity.process, report.suspensions, client) }
        // The dictionary is changed in place, so that its order matches the list pages that were sent already.
        var names = client.names
        var reported: Set<NotificationName> = []
        for name in kept.names {
            let key = NotificationName(name.name)
            var accepted = name
            accepted.state = nil
            // New names enter before the missing ones leave, so that no state is lost in between.
            if names[key] == nil { enter(key, connection, identity) }
            if let state = name.state, maySet(name.name, identity) {
                let state = StateReport(value: state.value, time: min(state.time, now))
                accepted.state = state
                self.names.set(key, state, by: connection)
            }
            names[key] = accepted
            reported.insert(key)
        }
        for name in client.names.keys where !reported.contains(name) {
            leave(name, connection)
            names[name] = nil
        }
        account(identity.user, client.amount, amount)
        clients[connection]?.names = names
        clients[connection]?.amount = amount
        clients[connection]?.hasReported = true
        return report.names.lazy.map(\.name).filter { !mayEnter($0, identity) }
    }

    /// Takes the suspension count from a connection's first report, because an earlier notifyd may have suspended the
    /// process.
    private mutating func learnSuspensions(of process: UInt32, _ count: UInt32, _ client: Client) {
        // Any process can send any count, so it is limited. Process 0 means that the bus does not know the process id.
        let count = min(count, limits(ofUser: client.identity.user).suspensions)
        if process != 0, count > suspensions[process] ?? 0 { suspensions[process] = count }
    }

    // MARK: Lists

    /// The processes that a list covers.
    enum Scope: Sendable, Hashable {
        case all
        case user(UInt32)

        func contains(_ identity: Identity) -> Bool { self == .all || self == .user(identity.user) }
    }

    /// The processes that a caller may list: all for root, otherwise those of the same user.
    func scope(of caller: Identity) -> Scope { caller.user == 0 ? .all : .user(caller.user) }

    func connections(in scope: Scope) -> Set<String> {
        Set(clients.filter { !$0.value.names.isEmpty && scope.contains($0.value.identity) }.keys)
    }

    /// The numbers of names, permanent names and processes. For all users, the names include the permanent ones. For
    /// one user, only registered names count, once for each process.
    func counts(in scope: Scope) -> (names: Int, permanent: Int, processes: Int) {
        let count = if case .user(let user) = scope { amounts[user]?.names ?? 0 } else { names.entries.count }
        return (count, names.permanentCount, connections(in: scope).count)
    }

    /// Returns a page of the list. A name that is added or removed between two pages may be listed or missing.
    ///
    /// - Parameter cursor: 0, or the cursor of the previous page. The upper half is the number of a connection. The
    ///   lower half is the number of its names that previous pages listed.
    /// - Parameter reader: The caller. The page lists a permanent name only if the caller may read its state.
    func page(_ cursor: UInt64, for reader: Identity) -> ListPage {
        var (page, bytes) = (ListPage(), 0)
        let scope = scope(of: reader)
        var listed: Set<NotificationName> = []
        func list(_ name: NotificationName) {
            guard let entry = names.entries[name], listed.insert(name).inserted else { return }
            page.names.append(.init(name: name.rawValue, state: entry.state.value, isPermanent: entry.isPermanent))
        }
        if cursor == 0 {
            for (name, entry) in names.entries where entry.isPermanent && rules.allows(.read, name.rawValue, by: reader)
            {
                list(name)
            }
        }
        var first = Int(cursor & 0xFFFF_FFFF)
        let rest = connections(in: scope).compactMap { connection in clients[connection].map { (connection, $0) } }
            .filter { $0.1.number >= cursor >> 32 }.sorted { $0.1.number < $1.1.number }
        for (connection, client) in rest {
            if client.number != cursor >> 32 { first = 0 }
            var report = ProcessReport(suspensions: suspensions[client.identity.process] ?? 0)
            for (index, (name, row)) in client.names.enumerated().dropFirst(first) {
                guard bytes < Limits.pageBytes else {
                    page.cursor = client.number << 32 | UInt64(index)
                    break
                }
                let amount = Amount(ProcessReport(names: [row]))
                bytes += 128 + 2 * amount.bytes + 48 * amount.registrations
                report.names.append(row)
                list(name)
            }
            if !report.names.isEmpty {
                let (process, user) = (client.identity.process, client.identity.user)
                page.processes.append(.init(connection: connection, process: process, user: user, report: report))
            }
            if page.cursor != 0 { break }
        }
        return page
    }

    /// Counts a list that a connection waits for. Throws `limitsExceeded`.
    mutating func beginList(_ connection: String) throws(Refusal) {
        guard let user = clients[connection]?.identity.user else { return }
        let lists = clients.values.lazy.filter { $0.identity.user == user }.reduce(0) { $0 + $1.lists }
        let limit = limits(ofUser: user).lists
        guard lists < limit else {
            let message = "a user's processes may have \(limit) pending calls of List; wait for a response first"
            throw Refusal(.limitsExceeded, message)
        }
        clients[connection]?.lists += 1
    }

    /// Ends one wait that ``beginList(_:)`` counted.
    mutating func endList(_ connection: String) { clients[connection]?.lists -= 1 }
}

// Suspension of whole processes (Rules, a.3 and a.10).
extension DaemonState {
    /// Suspends all deliveries to a process. Suspensions are counted.
    ///
    /// - Parameter silent: The connections that do not read what notifyd sends.
    /// - Throws: `noSuchProcess`, `notAuthorized`; `limitsExceeded` if a connection of the process does not read.
    mutating func suspendProcess(
        _ process: UInt32,
        by caller: Identity,
        silent: Set<String> = []
    ) throws(Refusal) -> [Action] {
        let connections = try connections(of: process, for: caller, silent)
        let count = suspensions[process] ?? 0
        // Saturates, as Darwin's count does.
        guard count < limits(ofUser: caller.user).suspensions else { return [] }
        suspensions[process] = count + 1
        return connections.map { .suspend(connection: $0, times: 1) }
    }

    /// Undoes one suspension. Does nothing if the process is not suspended. Throws as ``suspendProcess(_:by:silent:)``.
    mutating func resumeProcess(
        _ process: UInt32,
        by caller: Identity,
        silent: Set<String> = []
    ) throws(Refusal) -> [Action] {
        let connections = try connections(of: process, for: caller, silent)
        guard let count = suspensions[process] else { return [] }
        suspensions[process] = count > 1 ? count - 1 : nil
        return connections.map { .resume(connection: $0) }
    }

    private func connections(
        of process: UInt32,
        for caller: Identity,
        _ silent: Set<String>
    ) throws(Refusal) -> [String] {
        // 0 means that the bus does not know the process id.
        let found = clients.filter { process != 0 && $0.value.identity.process == process && !$0.value.names.isEmpty }
        guard !found.isEmpty else {
            throw Refusal(.noSuchProcess, "process \(process) does not exist, or has no registrations")
        }
        guard caller.user == 0 || found.values.allSatisfy({ $0.identity.user == caller.user }) else {
            let attempt = "user \(caller.user) may not suspend or resume process \(process)"
            throw Refusal(.notAuthorized, "\(attempt): its own user and root may")
        }
        let connections = clients.filter { $0.value.identity.process == process }.keys.sorted()
        guard silent.isDisjoint(with: connections) else {
            let message = "process \(process) does not read what notifyd sends; try again when it does"
            throw Refusal(.limitsExceeded, message)
        }
        return connections
    }
}

/// A connection that has called notifyd, and its registrations. Pure.
struct Client {
    let identity: Identity
    /// Increases with each connection, and orders the lists.
    let number: UInt64
    var names: [NotificationName: NameReport] = [:]
    /// The amount that notifyd stores for it.
    var amount = Amount()
    /// Whether it has reported to this notifyd.
    var hasReported = false
    var lists = 0
}

struct Refusal: Error, Sendable, Hashable {
    let name: NotifydProtocol.ErrorName
    /// The attempted operation, the obstacle, and the remedy.
    let message: String

    init(_ name: NotifydProtocol.ErrorName, _ message: String) { (self.name, self.message) = (name, message) }
}
