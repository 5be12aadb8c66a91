import Basics
import DBus
import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice

/// The processes behind the bus connections to which the broker gave an account. They are killed without a request to
/// exit: they have already ignored the broker.
struct ConnectedProcesses: ProgramControl {
    let connection: DBusConnection
    let names: [String]
    /// The user whose processes may be killed. The broker names connections, and must not be able to have any process
    /// killed.
    let user: UInt32
    /// Whether the app has an adapter, which may run as the user and with the program of this process.
    let hasAdapter: Bool

    var name: String { "the processes that had the account" }

    private static let patience = Duration.seconds(10)

    func stop() async throws(AdapterFailure) {
        for name in names { try await end(name) }
        let areGone = try await holds(within: Self.patience) { () throws(AdapterFailure) in try await isStopped() }
        guard !areGone else { return }
        throw AdapterFailure(
            "stop \(names.joined(separator: ", ")): the connection stays on the bus, although its process was killed",
            remedy:
                "Another process may have the connection: see busctl status NAME, and end it. Or the killed process waits for a file system"
        )
    }

    func isStopped() async throws(AdapterFailure) -> Bool {
        for name in names where try await peer(name) != nil { return false }
        return true
    }

    func start() {}

    private func end(_ name: String) async throws(AdapterFailure) {
        guard let number = try await peer(name)?.processID.flatMap({ Int32(exactly: $0) }) else { return }
        guard let process = ProcessDescriptor(number) else { return }
        guard let peer = try await peer(name), peer.processID == UInt32(number) else { return }
        let found = Found(
            connectionUser: peer.userID,
            isConnectionsRunning: peer.isRunning,
            users: Set(try ProcessTree.users(of: number)),
            isOwnProgram: number != getpid() && Self.hasOwnProgram(number)
        )
        switch found.verdict(user: user, adapter: hasAdapter ? geteuid() : nil) {
        case .ended: return
        case .meant: process.send(SIGKILL)
        case .stranger:
            throw AdapterFailure(
                "stop the process \(number): it does not belong to user \(user), and is not an adapter",
                remedy:
                    "See busctl status \(name): end the process that has the connection, or correct the manifest's user"
            )
        }
    }

    /// The facts about the process that has the number of a connection's process. The connection survives its process
    /// if another one inherited it, and the number may belong to a stranger by now.
    struct Found {
        enum Verdict {
            case meant, stranger, ended
        }

        let connectionUser: UInt32
        /// Whether the process that made the connection runs; `nil` if the bus cannot tell.
        let isConnectionsRunning: Bool?
        /// The real, effective and saved users of the process with this number; empty if it has ended.
        let users: Set<UInt32>
        /// Whether it runs the program of this process.
        let isOwnProgram: Bool

        /// - Parameter adapter: the user of the app's adapter; `nil` if it has none.
        func verdict(user: UInt32, adapter: UInt32?) -> Verdict {
            if isConnectionsRunning == false || users.isEmpty { return .ended }
            if connectionUser == user { return users.contains(user) ? .meant : .stranger }
            guard let adapter, connectionUser == adapter else { return .stranger }
            return users.contains(adapter) && isOwnProgram ? .meant : .stranger
        }
    }

    private static func hasOwnProgram(_ number: Int32) -> Bool {
        let programs = ["/proc/self/exe", "/proc/\(number)/exe"].map { link -> String? in
            let program = try? FileManager.default.destinationOfSymbolicLink(atPath: link)
            // An update may have replaced the file of a running program.
            return program.map { $0.hasSuffix(" (deleted)") ? String($0.dropLast(" (deleted)".count)) : $0 }
        }
        return programs[0] != nil && programs[0] == programs[1]
    }

    /// The peer of the connection; `nil` if the connection is closed.
    private func peer(_ name: String) async throws(AdapterFailure) -> DBusConnection.PeerCredentials? {
        do throws(DBusError) {
            return try await connection.credentials(of: name)
        } catch {
            if error.code == .refused { return nil }
            throw AdapterFailure("look at the connection \(name): \(error.message)", remedy: "Check that the bus runs")
        }
    }
}

/// All programs of an app as one.
struct ProgramParts: ProgramControl {
    let name: String
    let parts: [any ProgramControl]

    func stop() async throws(AdapterFailure) { for part in parts { try await part.stop() } }

    func isStopped() async throws(AdapterFailure) -> Bool {
        for part in parts where try await !part.isStopped() { return false }
        return true
    }

    func start() async throws(AdapterFailure) { for part in parts { try await part.start() } }
}

/// The processes of an app that the adapter does not start: those of its user that run its program or are in its
/// Flatpak's sandbox, and their descendants. A process that runs another program and has lost its parents is not found:
/// run such an app as a unit.
struct AppProcesses: ProgramControl {
    let name: String
    let mark: ProcessTree.Mark
    /// The user whose processes these are. Processes of other users are spared.
    let user: UInt32
    var patience = StopPatience()

    func stop() async throws(AdapterFailure) {
        guard let left = try await ProcessTree.stop(within: patience, look) else { return }
        throw AdapterFailure(
            "stop \(name): "
                + "it does not end, or is started again, although it was killed; left: \(ProcessTree.describe(left))",
            remedy:
                "See what starts it; a process that waits for a device (ps -o pid,stat,wchan) needs a restart of the device"
        )
    }

    func isStopped() async throws(AdapterFailure) -> Bool {
        try await onSystemThread(look).processes.isEmpty
    }

    /// Does nothing: the app's launcher starts it again.
    func start() {}

    /// The marked processes and their descendants of the same user.
    private func look() throws(AdapterFailure) -> ProcessTree.Sight {
        let tree = try ProcessTree(by: mark, user: user)
        return (tree, tree.descendants(of: tree.marked, excluding: []).intersection(tree.own).union(tree.marked))
    }
}
