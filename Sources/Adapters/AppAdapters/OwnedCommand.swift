public import Basics
import CLinux
import DBus
import Glibc
@_spi(Extensions) import SharedDevice
import Synchronization

/// A command that the adapter starts and ends with all its processes: its process group, its descendants, and processes
/// with its mark from an earlier adapter that was killed.
///
/// A process outside all of these is not found: a system service may have started it for the command, or it changed its
/// environment and lost its parents before the adapter was killed. Run such programs as a unit.
public final class OwnedCommand: ProgramControl {
    public struct Settings: Sendable {
        /// Marks the processes: the directory of the app's record. It keeps another device's adapter of the same app
        /// from claiming them.
        public var mark: String
        /// Whether the mark is a path that only this command's arguments contain: a directory that was made for it.
        public var isMarkedByArguments = false
        /// Consecutive words of the command that mark its processes in addition to the variable; none if the variable
        /// suffices.
        public var markingWords: [String] = []
        public var command: [String]
        /// Variables in addition to those of this process.
        public var environment: [String: String] = [:]
        public var output = ProgramStart.Descriptor.inherited
        /// Directories to create before each start.
        public var directories: [String] = []
        /// The user that the command runs as.
        public var user: UInt32 = geteuid()
        /// A prefix that switches to the command's user; empty if that is the user of this process.
        public var launcher: [String] = []
        /// A command that ends processes which are not visible as the command's, for instance a Flatpak's.
        public var killer: [String] = []
        /// Whether to restart a command that exits by itself. Otherwise it stays stopped until
        /// ``OwnedCommand/allowStart()``.
        public var restarts = true
        public var patience = StopPatience()

        public init(mark: String, command: [String]) {
            self.mark = mark
            self.command = command
        }
    }

    private struct State {
        var process: HelperProcess?
        /// Whether a start is in flight, with no process known yet.
        var isStarting = false
        var isWanted = false
        /// Whether it exited by itself and is not restarted.
        var isOver = false
        var backoff = Backoff(first: .seconds(1), longest: .seconds(30))
    }

    /// The running commands of this process, with their marks.
    private static let commands = Locked<[pid_t: String]>([:])

    public var name: String { settings.command.first ?? "" }
    private let settings: Settings
    private let state = Locked(State())
    /// Called when the command has exited by itself, with its status and running time.
    private let ended: @Sendable (Int32, Duration) -> Void
    /// Children from before this program, with their start times: a shell that replaced itself with this program leaves
    /// its children behind. They do not belong to the command.
    private let earlier: [pid_t: UInt64]

    /// Makes this process adopt the orphans of the command.
    public init(_ settings: Settings, ended: @escaping @Sendable (Int32, Duration) -> Void = { _, _ in }) {
        self.settings = settings
        self.ended = ended
        earlier = Self.earlierChildren
        CLinux_adoptOrphans()
    }

    /// The children at the first command of this process. Empty if unreadable: then they are ended rather than spared.
    private static let earlierChildren: [pid_t: UInt64] = {
        let tree = try? ProcessTree(by: nil, user: geteuid())
        let own = HelperProcess.own
        return (tree?.entries ?? [:]).filter { $0.value.parent == getpid() && !own.contains($0.key) }.mapValues(\.start)
    }()

    // MARK: Starting

    public func start() async throws(AdapterFailure) { try launch(again: false) }

    /// - Parameter again: whether this is a restart, which does not happen once the command is stopped.
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
            throw AdapterFailure("start \(name): \(reason)", remedy: "Correct the command")
        }
        let began = ContinuousClock.now
        Self.commands.withLock { $0[process.identifier] = settings.mark }
        let isWanted = state.withLock { state in
            state.process = process
            return state.isWanted
        }
        // The command was stopped during its start.
        if !isWanted { process.killGroup(SIGKILL) }
        Task { [self] in
            let status = await process.waitUntilEnd() ?? -1
            await hasEnded(process, status, after: ContinuousClock.now - began)
        }
    }

    /// Allows a command that exited by itself to start again.
    public func allowStart() { state.withLock { $0.isOver = false } }

    private func hasEnded(_ process: HelperProcess, _ status: Int32, after time: Duration) async {
        _ = Self.commands.withLock { $0.removeValue(forKey: process.identifier) }
        let pause = state.withLock { state -> Duration? in
            guard state.process === process else { return nil }
            state.process = nil
            guard state.isWanted else { return nil }
            state.isOver = !settings.restarts
            return state.backoff.next()
        }
        guard let pause else { return }
        ended(status, time)
        guard settings.restarts else { return }
        try? await Task.sleep(for: pause)
        // The error is dropped: at the device's next change of state the start is attempted again, and a failure is
        // reported.
        try? launch(again: true)
    }

    // MARK: Ending

    public func stop() async throws(AdapterFailure) {
        state.withLock { state in
            state.isWanted = false
            state.backoff.reset()
        }
        if let killer = settings.killer.first {
            let arguments = Array(settings.killer.dropFirst())
            _ = try? await HelperProcess.output(of: killer, arguments, patience: settings.patience.asked)
        }
        guard let left = try await ProcessTree.stop(within: settings.patience, isIdle: { isIdle }, look) else { return }
        throw .isKilled(name, left: left)
    }

    public func isStopped() async throws(AdapterFailure) -> Bool {
        try await onSystemThread(look).processes.isEmpty && isIdle
    }

    /// Whether no start is in flight and the last process is reaped.
    private var isIdle: Bool { state.withLock { $0.process == nil && !$0.isStarting } }

    private var mark: ProcessTree.Mark {
        if settings.isMarkedByArguments { return .path(settings.mark) }
        let words = settings.markingWords
        return words.isEmpty ? .variable(settings.mark) : .words(words, variable: settings.mark)
    }

    /// The running processes of the command.
    @Sendable private func look() throws(AdapterFailure) -> ProcessTree.Sight {
        let tree = try ProcessTree(by: mark, user: settings.user)
        tree.collectAdopted()
        // Spares other programs that this process started, but not those of an earlier adapter of this app.
        let commands = Self.commands.withLock { $0 }.filter { $0.value == settings.mark }
        let spared = earlier.filter { tree.entries[$0.key]?.start == $0.value && !tree.marked.contains($0.key) }
        let others = HelperProcess.own.subtracting(commands.keys).union(spared.keys)
        let marked = tree.marked.subtracting(others)
        return (tree, tree.descendants(of: marked.union([getpid()]), excluding: others).union(marked))
    }
}
