import CLinux
import DBusTransport
import FoundationEssentials
import Glibc
import SharedDevice
import Synchronization

/// A command that the adapter starts, and ends with all that came of it: its process group, what descends from it, and what bears its mark from an
/// earlier adapter that was killed.
///
/// A process that has left all of them is not found: one that a service of the system started on the command's request, or that has changed its
/// variables and lost its parents before the adapter was killed. Run such programs as a unit.
package final class OwnedCommand: ProgramControl {
    package struct Settings: Sendable {
        /// What marks the processes: the directory of the app's record, so that another device's adapter of the same app does not take them for
        /// its own.
        package var mark: String
        /// The program and its arguments.
        package var command: [String]
        /// Variables beside those of this process.
        package var environment: [String: String] = [:]
        /// Directories that are made before each start.
        package var directories: [String] = []
        /// The user that the command runs as.
        package var user: UInt32 = geteuid()
        /// Put before the command, so that it runs as its user; empty where that is this process's.
        package var launcher: [String] = []
        /// Ends what the command's own processes do not show, for instance a Flatpak's.
        package var killer: [String] = []
        /// Whether a command that ends by itself is started again. Otherwise it stays ended until ``OwnedCommand/allowStart()``.
        package var restarts = true
        package var patience = StopPatience()

        package init(mark: String, command: [String]) {
            self.mark = mark
            self.command = command
        }
    }

    private struct State {
        var process: HelperProcess?
        /// Whether a start is under way: its process is not known yet.
        var isStarting = false
        var isWanted = false
        /// Whether it has ended by itself, and is not started again.
        var isOver = false
        /// The pause before the next start of a command that has ended.
        var pause = OwnedCommand.firstPause
    }

    /// The commands that this process has started and that have not ended, with their marks.
    private static let commands = Locked<[pid_t: String]>([:])

    private static let firstPause = Duration.seconds(1)
    private static let longestPause = Duration.seconds(30)

    package var name: String { settings.command.first ?? "" }
    private let settings: Settings
    private let state = Locked(State())
    /// What happens when the command has ended by itself, with its status.
    private let ended: @Sendable (Int32) -> Void

    /// From here on this process adopts what the command leaves.
    package init(_ settings: Settings, ended: @escaping @Sendable (Int32) -> Void = { _ in }) {
        self.settings = settings
        self.ended = ended
        CLinux_adoptOrphans()
    }

    // MARK: Starting

    package func start() async throws(AdapterFailure) { try launch(again: false) }

    /// - Parameter again: only where nobody has stopped it meanwhile.
    private func launch(again: Bool) throws(AdapterFailure) {
        let mayStart = state.withLock { state in
            guard state.process == nil, !state.isStarting, !state.isOver, state.isWanted || !again else { return false }
            state.isStarting = true
            state.isWanted = true
            return true
        }
        guard mayStart else { return }
        defer { state.withLock { $0.isStarting = false } }
        if settings.launcher.isEmpty { try makeDirectories() }
        let words = settings.launcher + settings.command
        guard let program = words.first else { return }
        let variables = ProcessInfo.processInfo.environment
            .merging(settings.environment) { $1 }
            .merging([ProcessTree.mark: settings.mark]) { $1 }
        let process: HelperProcess
        do throws(HelperProcess.Failure) {
            process = try HelperProcess(
                program,
                Array(words.dropFirst()),
                environment: variables,
                output: .inherited,
                leadsGroup: true
            )
        } catch {
            throw AdapterFailure("start", name, error.description, remedy: "Correct the command")
        }
        Self.commands.withLock { $0[process.identifier] = settings.mark }
        let isWanted = state.withLock { state in
            state.process = process
            return state.isWanted
        }
        // It was stopped while it started.
        if !isWanted { process.killGroup(SIGKILL) }
        Task { [self] in
            let status = await process.waitUntilEnd() ?? -1
            await hasEnded(process, status)
        }
    }

    /// Lets a command start again that has ended by itself.
    package func allowStart() { state.withLock { $0.isOver = false } }

    private func makeDirectories() throws(AdapterFailure) {
        for path in settings.directories {
            do {
                try FileManager.default.createDirectory(
                    atPath: path,
                    withIntermediateDirectories: true,
                    attributes: [.posixPermissions: 0o700]
                )
            } catch {
                let reason = (error as? CocoaError)?.underlying as? POSIXError
                throw AdapterFailure(
                    "make the directory",
                    path,
                    String(cString: strerror(reason?.code.rawValue ?? EIO)),
                    remedy: "Make the directory above it, and give it to this user"
                )
            }
        }
    }

    private func hasEnded(_ process: HelperProcess, _ status: Int32) async {
        _ = Self.commands.withLock { $0.removeValue(forKey: process.identifier) }
        let pause = state.withLock { state -> Duration? in
            guard state.process === process else { return nil }
            state.process = nil
            guard state.isWanted else { return nil }
            state.isOver = !settings.restarts
            defer { state.pause = min(state.pause * 2, Self.longestPause) }
            return state.pause
        }
        guard let pause else { return }
        ended(status)
        guard settings.restarts else { return }
        try? await Task.sleep(for: pause)
        // A failure here comes again with the next state of the device.
        try? launch(again: true)
    }

    // MARK: Ending

    package func stop() async throws(AdapterFailure) {
        state.withLock { state in
            state.isWanted = false
            state.pause = Self.firstPause
        }
        if let killer = settings.killer.first {
            _ = try? await HelperProcess.output(
                of: killer,
                Array(settings.killer.dropFirst()),
                patience: settings.patience.asked
            )
        }
        state.withLock { $0.process }?.killGroup(SIGTERM)
        for other in left() { kill(other, SIGTERM) }
        if try await holds(within: settings.patience.asked, { () throws(AdapterFailure) in try await isStopped() }) {
            return
        }
        // What is killed may have started more meanwhile.
        let areGone = try await holds(within: settings.patience.killed) { () throws(AdapterFailure) in
            state.withLock { $0.process }?.killGroup(SIGKILL)
            for other in left() { kill(other, SIGKILL) }
            return try await isStopped()
        }
        guard !areGone else { return }
        throw AdapterFailure(
            "stop",
            name,
            "it does not end, although it was killed; left: \(left().sorted().map(ProcessTree.describe).joined(separator: ", "))",
            remedy:
                "A process that waits for a device cannot be killed: see ps -o pid,stat,wchan, and restart the device"
        )
    }

    package func isStopped() async throws(AdapterFailure) -> Bool {
        left().isEmpty && state.withLock { $0.process == nil && !$0.isStarting }
    }

    /// The processes of the command that have not ended.
    private func left() -> Set<pid_t> {
        let entries = ProcessTree.entries()
        ProcessTree.collectAdopted(in: entries)
        // Other programs that this process has started are none of the command's; those that an earlier adapter of this app has are.
        let commands = Self.commands.withLock { $0 }.filter { $0.value == settings.mark }
        let others = HelperProcess.own.subtracting(commands.keys)
        return ProcessTree.descendants(of: getpid(), excluding: others, in: entries)
            .union(ProcessTree.marked(settings.mark, user: settings.user, in: entries).subtracting(others))
    }
}
