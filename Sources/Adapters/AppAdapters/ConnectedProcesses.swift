import DBusTransport
import FoundationEssentials
import Glibc

/// The processes behind connections of the bus, which the broker has given an account. They are killed: they have not heard the broker, and need not
/// hear this.
struct ConnectedProcesses: ProgramControl {
    let connection: DBusConnection
    /// The connections' unique names.
    let names: [String]
    /// The user whose processes they may be. The broker names connections, and is not to have any process killed.
    let user: UInt32
    /// Whether the app has an adapter, which may run as this process's user, with this process's program.
    let hasAdapter: Bool

    var name: String { "the processes that had the account" }

    private static let patience = Duration.seconds(10)

    func stop() async throws(AdapterFailure) {
        for name in names { try await end(name) }
        let areGone = try await holds(within: Self.patience) { () throws(AdapterFailure) in try await isStopped() }
        guard !areGone else { return }
        throw AdapterFailure(
            "stop",
            names.joined(separator: ", "),
            "the connection stays on the bus, although its process was killed",
            remedy:
                "Another process has it: see busctl status NAME, and end that. Or the killed one waits for a file system"
        )
    }

    func isStopped() async throws(AdapterFailure) -> Bool {
        for name in names where try await peer(name) != nil { return false }
        return true
    }

    func start() async throws(AdapterFailure) {}

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
                "stop",
                "the process \(number)",
                "it is not user \(user)'s, and no adapter",
                remedy:
                    "See busctl status \(name): end the process that has the connection, or correct the manifest's user"
            )
        }
    }

    /// What is known of the process that has the number of a connection's. A connection stays where its process has handed it on to another and ended,
    /// and the number may be a stranger's by now: what counts is whose process the descriptor means, and, where the bus knows it, that the
    /// connection's own process has not ended.
    struct Found {
        enum Verdict {
            case meant, stranger, ended
        }

        let connectionUser: UInt32
        /// Whether the process that made the connection runs; `nil` where the bus cannot tell.
        let isConnectionsRunning: Bool?
        /// Real, effective and saved, of the process that has the number now; none where it has ended.
        let users: Set<UInt32>
        /// Whether it is another process of this one's program.
        let isOwnProgram: Bool

        /// - Parameters:
        ///   - user: the app's.
        ///   - adapter: the user of its adapter; `nil` where it has none.
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
            // An update has removed the file of a program that still runs.
            return program.map { $0.hasSuffix(" (deleted)") ? String($0.dropLast(" (deleted)".count)) : $0 }
        }
        return programs[0] != nil && programs[0] == programs[1]
    }

    /// Who is behind the connection; `nil` where nobody is.
    private func peer(_ name: String) async throws(AdapterFailure) -> DBusConnection.PeerCredentials? {
        do throws(DBusError) {
            return try await connection.credentials(of: name)
        } catch {
            if error.code == .refused { return nil }
            throw AdapterFailure("look at", "the connection \(name)", error.message, remedy: "Is the bus there?")
        }
    }
}

/// Several programs as one: all that is an app's.
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
