import CLinux
package import DBusTransport
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
        /// Whether the mark is a path that the command's arguments have, and those of no other program: a directory that was made for it.
        package var isMarkedByArguments = false
        /// Words of the command, one after the other, that mark its processes beside the variable; none: it alone does.
        package var markingWords: [String] = []
        /// The program and its arguments.
        package var command: [String]
        /// Variables beside those of this process.
        package var environment: [String: String] = [:]
        /// Where its standard output goes.
        package var output = ProgramStart.Descriptor.inherited
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
    /// What happens when the command has ended by itself: its status, and how long it ran.
    private let ended: @Sendable (Int32, Duration) -> Void
    /// Children that this process had before, with their starts: a shell that has become this program leaves them behind, and they are none of the
    /// command's.
    private let earlier: [pid_t: UInt64]

    /// From here on this process adopts what the command leaves.
    package init(_ settings: Settings, ended: @escaping @Sendable (Int32, Duration) -> Void = { _, _ in }) {
        self.settings = settings
        self.ended = ended
        earlier = Self.earlierChildren
        CLinux_adoptOrphans()
    }

    /// Those that the first command of this process found. Where they cannot be read, there are none: what is left is then ended rather than kept.
    private static let earlierChildren: [pid_t: UInt64] = {
        let tree = try? ProcessTree(by: nil, user: geteuid())
        let own = HelperProcess.own
        return (tree?.entries ?? [:]).filter { $0.value.parent == getpid() && !own.contains($0.key) }.mapValues(\.start)
    }()

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
        if settings.launcher.isEmpty { try ProgramDirectories.make(settings.directories) }
        let words = settings.launcher + settings.command
        guard let program = words.first else { return }
        var start = HelperProcess.Settings()
        start.environment.merge(settings.environment) { $1 }
        start.environment[ProcessTree.mark] = settings.mark
        (start.output, start.errors) = (settings.output, .inherited)
        start.leadsGroup = true
        let process: HelperProcess
        do throws(HelperProcess.Failure) {
            process = try HelperProcess(program, Array(words.dropFirst()), start)
        } catch {
            let reason = settings.launcher.isEmpty ? error.reason : error.description
            throw AdapterFailure("start", name, reason, remedy: "Correct the command")
        }
        let began = ContinuousClock.now
        Self.commands.withLock { $0[process.identifier] = settings.mark }
        let isWanted = state.withLock { state in
            state.process = process
            return state.isWanted
        }
        // It was stopped while it started.
        if !isWanted { process.killGroup(SIGKILL) }
        Task { [self] in
            let status = await process.waitUntilEnd() ?? -1
            await hasEnded(process, status, after: ContinuousClock.now - began)
        }
    }

    /// Lets a command start again that has ended by itself.
    package func allowStart() { state.withLock { $0.isOver = false } }

    private func hasEnded(_ process: HelperProcess, _ status: Int32, after time: Duration) async {
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
        ended(status, time)
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
        if try await end(by: SIGTERM, within: settings.patience.asked) { return }
        if try await end(by: SIGKILL, within: settings.patience.killed) { return }
        let left = try await onSystemThread(look).processes
        throw AdapterFailure(
            "stop",
            name,
            "it does not end, although it was killed; left: \(left.sorted().map(ProcessTree.describe).joined(separator: ", "))",
            remedy:
                "A process that waits for a device cannot be killed: see ps -o pid,stat,wchan, and restart the device"
        )
    }

    package func isStopped() async throws(AdapterFailure) -> Bool {
        try await onSystemThread(look).processes.isEmpty && isIdle
    }

    /// Whether no start is under way, and the last command is collected.
    private var isIdle: Bool { state.withLock { $0.process == nil && !$0.isStarting } }

    /// Sends a signal to all processes of the command, and to what they start meanwhile.
    ///
    /// - Returns: whether all have ended in time.
    private func end(by signal: Int32, within patience: Duration) async throws(AdapterFailure) -> Bool {
        let deadline = ContinuousClock.now + patience
        while true {
            let areGone = try await onSystemThread { () throws(AdapterFailure) in
                try ProcessTree.end(by: signal, until: deadline, self.look)
            }
            let left = deadline - ContinuousClock.now
            if areGone, try await holds(within: left, { isIdle }) { return true }
            guard left > .zero else { return false }
        }
    }

    private var mark: ProcessTree.Mark {
        if settings.isMarkedByArguments { return .path(settings.mark) }
        let words = settings.markingWords
        return words.isEmpty ? .variable(settings.mark) : .words(words, variable: settings.mark)
    }

    /// The processes of the command that have not ended.
    private func look() throws(AdapterFailure) -> ProcessTree.Sight {
        let tree = try ProcessTree(by: mark, user: settings.user)
        tree.collectAdopted()
        // Other programs that this process has started are none of the command's; those that an earlier adapter of this app has are.
        let commands = Self.commands.withLock { $0 }.filter { $0.value == settings.mark }
        let spared = earlier.filter { tree.entries[$0.key]?.start == $0.value && !tree.marked.contains($0.key) }
        let others = HelperProcess.own.subtracting(commands.keys).union(spared.keys)
        let marked = tree.marked.subtracting(others)
        return (tree, tree.descendants(of: marked.union([getpid()]), excluding: others).union(marked))
    }
}
