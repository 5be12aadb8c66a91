import Glibc
@_spi(Extensions) import SharedDevice

/// The processes of an app that the adapter does not start: those of its user that run its program or are in its
/// Flatpak's sandbox, and their descendants.
///
/// A process that runs another program and has lost its parents is not found. Run such an app as a unit.
struct AppProcesses: ProgramControl {
    let name: String
    let mark: ProcessTree.Mark
    /// The user whose processes these are. Processes of other users are spared.
    let user: UInt32
    var patience = StopPatience()

    func stop() async throws(AdapterFailure) {
        if try await end(by: SIGTERM, within: patience.asked) { return }
        if try await end(by: SIGKILL, within: patience.killed) { return }
        let left = try await onSystemThread(look).processes
        throw AdapterFailure(
            "stop",
            name,
            "it does not end, or is started again, although it was killed; left: "
                + left.sorted().map(ProcessTree.describe).joined(separator: ", "),
            remedy:
                "See what starts it; a process that waits for a device (ps -o pid,stat,wchan) needs a restart of the device"
        )
    }

    func isStopped() async throws(AdapterFailure) -> Bool {
        try await onSystemThread(look).processes.isEmpty
    }

    /// Does nothing: the app's launcher starts it again.
    func start() async throws(AdapterFailure) {}

    /// - Returns: whether all processes ended in time.
    private func end(by signal: Int32, within patience: Duration) async throws(AdapterFailure) -> Bool {
        let deadline = ContinuousClock.now + patience
        while true {
            let areGone = try await onSystemThread { () throws(AdapterFailure) in
                try ProcessTree.end(by: signal, until: deadline, look)
            }
            if areGone { return true }
            guard ContinuousClock.now < deadline else { return false }
        }
    }

    /// The marked processes and their descendants of the same user.
    private func look() throws(AdapterFailure) -> ProcessTree.Sight {
        let tree = try ProcessTree(by: mark, user: user)
        return (tree, tree.descendants(of: tree.marked, excluding: []).intersection(tree.own).union(tree.marked))
    }
}
