package import NotifyCenter

extension DaemonState {
    /// Replaces what is known about a connection by its report. Ignores names that it may not register, and states that
    /// it may not set.
    ///
    /// - Returns: The ignored names.
    /// - Throws: `limitsExceeded`; then nothing has changed.
    package mutating func reported(
        _ connection: String,
        _ report: ProcessReport,
        now: UInt64
    ) throws(Refusal) -> [String] {
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
            var details = Client.NameDetails(registrations: name.registrations, monitors: name.monitors)
            // New names enter before the missing ones leave, so that no state is lost in between.
            if names[key] == nil { enter(key, connection, identity) }
            if let state = name.state, maySet(name.name, identity) {
                details.state = StateReport(value: state.value, time: min(state.time, now))
                self.names.set(key, details.state ?? state, by: connection)
            }
            names[key] = details
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
        // Any process can send any count, so it is limited. Process 0 means that the bus could not tell the process.
        let count = min(count, limits(ofUser: client.identity.user).suspensions)
        if process != 0, count > suspensions[process] ?? 0 { suspensions[process] = count }
    }

    // MARK: Lists

    /// The processes that a list covers.
    package enum Scope: Sendable, Hashable {
        case all
        case user(UInt32)

        func contains(_ identity: Identity) -> Bool {
            switch self {
            case .all: true
            case .user(let user): identity.user == user
            }
        }
    }

    /// The processes that a caller may list: all for root, otherwise those of the same user.
    package func scope(of caller: Identity) -> Scope { caller.user == 0 ? .all : .user(caller.user) }

    package func connections(in scope: Scope) -> Set<String> {
        let found = clients.filter { !$0.value.names.isEmpty && scope.contains($0.value.identity) }
        return Set(found.keys)
    }

    /// The numbers of names, permanent names and processes. For all users, the names include the permanent ones. For
    /// one user, only registered names count, once for each process.
    package func counts(in scope: Scope) -> (names: Int, permanent: Int, processes: Int) {
        let count =
            switch scope {
            case .all: names.entries.count
            case .user(let user): amounts[user]?.names ?? 0
            }
        return (count, names.permanentCount, connections(in: scope).count)
    }

    /// Returns a page of the list. A name that is added or removed between two pages may be listed or missing.
    ///
    /// - Parameter cursor: 0, or the cursor of the previous page. The upper half is the number of a connection. The
    ///   lower half is the number of its names that previous pages listed.
    /// - Parameter reader: The caller. The page lists a permanent name only if the caller may read its state.
    package func page(_ cursor: UInt64, for reader: Identity) -> ListPage {
        var (page, bytes) = (ListPage(), 0)
        let scope = scope(of: reader)
        var listed: Set<NotificationName> = []
        func list(_ name: NotificationName) {
            guard let entry = names.entries[name], listed.insert(name).inserted else { return }
            page.names.append(
                NameListing(name: name.rawValue, state: entry.state.value, isPermanent: entry.isPermanent)
            )
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
            for (index, (name, details)) in client.names.enumerated().dropFirst(first) {
                guard bytes < Limits.pageBytes else {
                    page.cursor = client.number << 32 | UInt64(index)
                    break
                }
                let row = client.report(name, details)
                let amount = Amount(ProcessReport(names: [row]))
                bytes += 128 + 2 * amount.bytes + 48 * amount.registrations
                report.names.append(row)
                list(name)
            }
            if !report.names.isEmpty {
                let (process, user) = (client.identity.process, client.identity.user)
                page.processes.append(
                    ProcessListing(connection: connection, process: process, user: user, report: report)
                )
            }
            if page.cursor != 0 { break }
        }
        return page
    }

    /// Counts a list that a connection waits for.
    ///
    /// - Throws: `limitsExceeded`.
    package mutating func beginList(_ connection: String) throws(Refusal) {
        guard let user = clients[connection]?.identity.user else { return }
        let lists = clients.values.lazy.filter { $0.identity.user == user }.reduce(0) { $0 + $1.lists }
        let limit = limits(ofUser: user).lists
        guard lists < limit else {
            throw Refusal(
                .limitsExceeded,
                "a user's processes may have \(limit) pending calls of List; wait for a response first"
            )
        }
        clients[connection]?.lists += 1
    }

    /// Ends one wait that ``beginList(_:)`` counted.
    package mutating func endList(_ connection: String) { clients[connection]?.lists -= 1 }
}
