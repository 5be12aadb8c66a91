import NotifyCenter
package import NotifydProtocol

extension DaemonState {
    /// The report of a connection replaces what was known about it. Names that it may not have are ignored; so are states that it may not
    /// set.
    ///
    /// - Returns: the names that were ignored.
    /// - Throws: `limitsExceeded`; then nothing has changed.
    package mutating func reported(
        _ connection: String,
        _ report: ProcessReport,
        now: UInt64
    ) throws(Refusal) -> [String] {
        guard let client = clients[connection] else { return [] }
        let identity = client.identity
        // A name that comes twice counts twice, in favour of the others.
        let kept = ProcessReport(names: report.names.filter { mayEnter($0.name, identity) })
        let amount = Amount(kept)
        try account(client, amount)
        if !client.hasReported { learnSuspensions(of: identity.process, report.suspensions, client) }
        // Changed in place, so that the order stays that of the pages before.
        var names = client.names
        var reported: Set<NotificationName> = []
        for name in kept.names {
            let key = NotificationName(name.name)
            var details = Client.NameDetails(registrations: name.registrations, monitors: name.monitors)
            // Before the others leave, so that no state dies in between.
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

    /// The first report to this notifyd knows better how often its process is suspended.
    private mutating func learnSuspensions(of process: UInt32, _ count: UInt32, _ client: Client) {
        // A number that anybody may write; and 0 stands for processes that the bus cannot tell.
        let count = min(count, limits(ofUser: client.identity.user).suspensions)
        if process != 0, count > suspensions[process] ?? 0 { suspensions[process] = count }
    }

    // MARK: Lists

    /// Whose processes are listed.
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

    /// What this caller is told of: for root all.
    package func scope(of caller: Identity) -> Scope { caller.user == 0 ? .all : .user(caller.user) }

    /// Connections with registrations.
    package func connections(in scope: Scope) -> Set<String> {
        let found = clients.filter { !$0.value.names.isEmpty && scope.contains($0.value.identity) }
        return Set(found.keys)
    }

    /// How many names with registrations there are, for one user counted by process; permanent names; and processes.
    package func counts(in scope: Scope) -> (names: Int, permanent: Int, processes: Int) {
        let count =
            switch scope {
            case .all: names.entries.count
            case .user(let user): amounts[user]?.names ?? 0
            }
        return (count, names.permanentCount, connections(in: scope).count)
    }

    /// A page of the list. Names that come and go meanwhile may be on it or not.
    ///
    /// - Parameter cursor: 0, or that of the page before: the number of a connection in its upper half, and how many of the connection's
    ///   names came before in its lower half.
    /// - Parameter reader: to whom only those permanent names are told whose state it may read.
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

    /// A connection waits for a list.
    ///
    /// - Throws: `limitsExceeded`.
    package mutating func beginList(_ connection: String) throws(Refusal) {
        guard let user = clients[connection]?.identity.user else { return }
        let lists = clients.values.lazy.filter { $0.identity.user == user }.reduce(0) { $0 + $1.lists }
        let limit = limits(ofUser: user).lists
        guard lists < limit else {
            throw Refusal(.limitsExceeded, "a user's processes may wait for \(limit) lists; wait for an answer first")
        }
        clients[connection]?.lists += 1
    }

    /// A connection waits for a list no more.
    package mutating func endList(_ connection: String) { clients[connection]?.lists -= 1 }
}
