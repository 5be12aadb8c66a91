package import NotifyCenter

// Suspension of whole processes (Rules, a.3 and a.10).
extension DaemonState {
    /// Suspends all deliveries to a process. Suspensions are counted.
    ///
    /// - Parameter silent: The connections that do not read what notifyd sends.
    /// - Throws: `noSuchProcess`, `notAuthorized`; `limitsExceeded` if a connection of the process does not read.
    package mutating func suspendProcess(
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

    /// Undoes one suspension. Does nothing if the process is not suspended.
    ///
    /// - Throws: The errors of ``suspendProcess(_:by:silent:)``.
    package mutating func resumeProcess(
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
        // 0 means that the bus could not tell the process.
        let found = clients.filter { process != 0 && $0.value.identity.process == process && !$0.value.names.isEmpty }
        guard !found.isEmpty else {
            throw Refusal(.noSuchProcess, "process \(process) does not exist, or has no registrations")
        }
        guard caller.user == 0 || found.values.allSatisfy({ $0.identity.user == caller.user }) else {
            throw Refusal(
                .notAuthorized,
                "user \(caller.user) may not suspend or resume process \(process): its own user and root may"
            )
        }
        let connections = clients.filter { $0.value.identity.process == process }.keys.sorted()
        guard silent.isDisjoint(with: connections) else {
            throw Refusal(
                .limitsExceeded,
                "process \(process) does not read what notifyd sends; try again when it does"
            )
        }
        return connections
    }
}
