import NotifyCenter
package import NotifydProtocol

extension DaemonState {
    /// The report of a connection replaces what was known about it. Names that it may not have are ignored, and
    /// returned; so are states that it may not set, and paths that cannot be monitored.
    ///
    /// - Parameter isFirst: whether it answers the inquiry with which this notifyd began: then it knows better how often its
    ///   process is suspended.
    /// - Throws: `limitsExceeded`; then nothing has changed.
    package mutating func reported(
        _ connection: String,
        inquiry: UInt64,
        _ report: ProcessReport,
        isFirst: Bool,
        now: UInt64
    ) throws(Refusal) -> (actions: [Action], refused: [String]) {
        guard let identity = clients[connection]?.identity else { return ([], []) }
        try limits(of: identity).check(report)
        clients[connection]?.answered = inquiry
        // A number that anybody may write, and 0 stands for processes that the bus cannot tell.
        let told = min(report.suspensions, limits.suspensions)
        if isFirst, identity.process != 0, told > suspensions[identity.process] ?? 0 {
            suspensions[identity.process] = told
        }
        let names = Set(report.names.lazy.map { NotificationName($0.name) })
        // Before the others leave, so that no state dies in between.
        let before = clients[connection]?.names.keys.filter { !names.contains($0) } ?? []
        var actions = leave(connection, before.map(\.rawValue))
        let refused = try enter(connection, report.names.map(\.name))
        for name in report.names {
            let key = NotificationName(name.name)
            guard clients[connection]?.names[key] != nil else { continue }
            var details = Client.NameDetails(registrations: name.registrations)
            if let state = name.state, maySet(name.name, identity) {
                details.state = StateReport(value: state.value, time: min(state.time, now))
                self.names.set(key, details.state ?? state)
            }
            clients[connection]?.names[key] = details
            if let orphan = orphans?[key], orphan.connection != connection {
                // It was registered here all the time; only this was not known yet.
                self.names.set(key, orphan.state)
                orphans?[key] = nil
            }
        }
        actions += replaceMonitors(connection, report)
        return (actions, refused)
    }

    private mutating func replaceMonitors(_ connection: String, _ report: ProcessReport) -> [Action] {
        guard let client = clients[connection] else { return [] }
        var wanted: [Int32: (name: NotificationName, report: MonitorReport)] = [:]
        for name in report.names {
            let key = NotificationName(name.name)
            guard client.names[key] != nil else { continue }
            for monitor in name.monitors { wanted[monitor.token] = (key, monitor) }
        }
        var actions: [Action] = []
        for (token, monitor) in client.monitors.sorted(by: { $0.key < $1.key }) {
            if let same = wanted[token], same.name == monitor.name, same.report.path == monitor.path,
                same.report.flags == monitor.flags
            {
                continue
            }
            actions += unmonitor(connection, token)
        }
        for (token, monitor) in wanted.sorted(by: { $0.key < $1.key }) {
            // One that is refused is seen in the lists by its absence; the process was told when it asked first.
            let added = try? self.monitor(
                connection,
                token: token,
                name: monitor.name.rawValue,
                path: monitor.report.path,
                flags: monitor.report.flags
            )
            actions += added ?? []
        }
        return actions
    }

    // MARK: Lists

    /// All names, by name.
    package var nameListings: [NameListing] {
        names.entries.map { name, entry in
            NameListing(name: name.rawValue, state: entry.state.value, isPermanent: entry.isPermanent)
        }
        .sorted { $0.name < $1.name }
    }

    /// All connections that have registrations, by process and connection.
    package var processListings: [ProcessListing] {
        clients.filter { !$0.value.names.isEmpty }
            .map { connection, client in
                ProcessListing(
                    connection: connection,
                    process: client.identity.process,
                    user: client.identity.user,
                    program: client.identity.program,
                    report: client.report(suspensions: suspensions[client.identity.process] ?? 0)
                )
            }
            .sorted { ($0.process, $0.connection) < ($1.process, $1.connection) }
    }

    /// Connections with registrations that have not answered this inquiry.
    package func connectionsToAnswer(_ inquiry: UInt64) -> Set<String> {
        Set(clients.filter { !$0.value.names.isEmpty && $0.value.answered < inquiry }.keys)
    }
}
