import NotifyCenter
package import NotifydProtocol

// Paths that registrations monitor (Rules, a.13).
extension DaemonState {
    /// A token monitors a path, and its name is entered. A repetition changes nothing.
    ///
    /// - Throws: `invalidRequest`, `notAuthorized`, `limitsExceeded`.
    package mutating func monitor(
        _ connection: String,
        token: Int32,
        name: String,
        path: String,
        flags: UInt32
    ) throws(Refusal) -> [Action] {
        guard let client = clients[connection] else { return [] }
        try limits.check(path: path)
        let key = NotificationName(name)
        if let monitor = client.monitors[token] {
            guard monitor.name == key, monitor.path == path, monitor.flags == flags else {
                throw Refusal(.invalidRequest, "token \(token) monitors another path; use another token")
            }
            return []
        }
        try limits(of: client.identity).check(monitors: client.monitors.count + 1)
        guard try enter(connection, [name]).isEmpty else {
            throw Refusal(.notAuthorized, "user \(client.identity.user) may not register for \(name.prefix(200))")
        }
        let id = takeWatchID()
        clients[connection]?.monitors[token] = Client.Monitor(id: id, name: key, path: path, flags: flags)
        watched[id] = (connection, token)
        return [.watch(id: id, path: path, flags: flags, as: client.identity)]
    }

    /// A token monitors nothing any more.
    package mutating func unmonitor(_ connection: String, _ token: Int32) -> [Action] {
        guard let monitor = clients[connection]?.monitors.removeValue(forKey: token) else { return [] }
        watched[monitor.id] = nil
        return [.unwatch(id: monitor.id)]
    }

    /// A path cannot be monitored.
    package mutating func watchFailed(_ id: UInt64) {
        guard let (connection, token) = watched.removeValue(forKey: id) else { return }
        clients[connection]?.monitors[token] = nil
    }

    /// Something changed at a path: the registration that asked is told, and no other.
    package func changed(_ id: UInt64) -> [Action] {
        watched[id].map { [.tell(connection: $0.connection, token: $0.token)] } ?? []
    }

    /// How many paths are monitored for registrations.
    package var monitorCount: Int { watched.count }
}

// Suspension of whole processes (Rules, a.3 and a.10).
extension DaemonState {
    /// Holds back all deliveries to a process; counted.
    ///
    /// - Throws: `noSuchProcess`, `notAuthorized`.
    package mutating func suspendProcess(_ process: UInt32, by caller: Identity) throws(Refusal) -> [Action] {
        let connections = try connections(of: process, for: caller)
        let count = suspensions[process] ?? 0
        // Saturates, as Darwin's does.
        guard count < limits.suspensions else { return [] }
        suspensions[process] = count + 1
        return connections.map { .suspend(connection: $0, times: 1) }
    }

    /// Undoes one suspension; without any, does nothing.
    ///
    /// - Throws: `noSuchProcess`, `notAuthorized`.
    package mutating func resumeProcess(_ process: UInt32, by caller: Identity) throws(Refusal) -> [Action] {
        let connections = try connections(of: process, for: caller)
        guard let count = suspensions[process] else { return [] }
        suspensions[process] = count > 1 ? count - 1 : nil
        return connections.map { .resume(connection: $0) }
    }

    private func connections(of process: UInt32, for caller: Identity) throws(Refusal) -> [String] {
        // 0 stands for processes that the bus cannot tell.
        let found = clients.filter { process != 0 && $0.value.identity.process == process }
        guard found.values.contains(where: { !$0.names.isEmpty }) else {
            throw Refusal(.noSuchProcess, "process \(process) does not exist, or has no registrations")
        }
        guard caller.user == 0 || found.values.allSatisfy({ $0.identity.user == caller.user }) else {
            throw Refusal(
                .notAuthorized,
                "user \(caller.user) may not suspend or resume process \(process): its own user and root may"
            )
        }
        return found.keys.sorted()
    }
}
