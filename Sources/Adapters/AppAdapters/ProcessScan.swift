import DBusTransport
import Dispatch
import Glibc
import Synchronization

/// A look at all processes that ends although one of them never answers. The kernel reads the words and variables of a process from its memory, and
/// the adapter a Flatpak's name from a file below its root directory. Both may lie on a file system that the process's user serves, or on a server that
/// is gone. Whoever reads there waits in the kernel, where no signal ends the wait.
final class ProcessScan: Sendable {
    /// A process, and no later one of its number.
    struct Process: Hashable {
        let identifier: pid_t
        let start: UInt64
    }

    /// Threads that wait for processes that do not answer.
    final class Stuck: Sendable {
        static let shared = Stuck()
        /// How many wait for processes of one user.
        static let mostOfUser = 16

        private let threads = Locked<[UInt32: [Process: Int]]>([:])

        func processes(of user: UInt32) -> Set<Process> { threads.withLock { Set($0[user, default: [:]].keys) } }

        fileprivate func add(_ process: Process, of user: UInt32, _ change: Int) {
            threads.withLock { threads in
                let count = (threads[user]?[process] ?? 0) + change
                threads[user, default: [:]][process] = count > 0 ? count : nil
            }
        }
    }

    private struct State {
        /// Whose turn it is, and how many turns there were.
        var process = Process(identifier: 0, start: 0)
        var count = 0
        var result: Result<ProcessTree, AdapterFailure>?
        /// Where nobody waits any more: the process that was the reason.
        var abandoned: Process?
    }

    private let user: UInt32
    private let stuck: Stuck
    private let state = Locked(State())

    private init(_ user: UInt32, _ stuck: Stuck) {
        self.user = user
        self.stuck = stuck
    }

    /// Called before anything of the process is read that may never answer.
    ///
    /// - Throws: ``AdapterFailure`` where another thread waits for the process already, or nobody waits for this look.
    func begins(_ process: Process) throws(AdapterFailure) {
        let isAbandoned = state.withLock { state in
            state.process = process
            state.count += 1
            return state.abandoned != nil
        }
        let others = stuck.processes(of: user)
        guard others.contains(process) || isAbandoned || others.count >= Stuck.mostOfUser else { return }
        throw Self.silent(others.contains(process) ? [process] : others)
    }

    /// Runs `body` on a thread of its own, and waits for it on this one. Where a process does not answer, the thread stays until it does.
    ///
    /// - Parameters:
    ///   - user: whose processes are looked at.
    ///   - patience: how long a process may take: it gets this once or twice, and all processes together get twelve times as long.
    /// - Throws: what `body` throws; ``AdapterFailure`` that names the process that does not answer.
    static func run(
        of user: UInt32,
        patience: Duration,
        stuck: Stuck = .shared,
        _ body: @escaping @Sendable (ProcessScan) throws(AdapterFailure) -> ProcessTree
    ) throws(AdapterFailure) -> ProcessTree {
        let scan = ProcessScan(user, stuck)
        let isDone = DispatchSemaphore(value: 0)
        let work: @Sendable () -> Void = {
            scan.end(Result(catching: { () throws(AdapterFailure) in try body(scan) }))
            isDone.signal()
        }
        // Where the system grants no thread, it is this one: a program that starts others without end must not thereby keep its own end away.
        if QuietThread.start("processes", work) == nil { work() }
        let end = SuspendingClock.now + patience * 12
        var last = -1
        while true {
            _ = isDone.wait(timeout: .now() + .milliseconds(Int(patience / .milliseconds(1))))
            let now = scan.state.withLock { $0 }
            if let result = now.result { return try result.get() }
            // On a busy machine the thread may not have begun.
            let isStuck = now.count == last && now.count > 0
            if isStuck || SuspendingClock.now >= end, let process = scan.abandon() { throw silent([process]) }
            last = now.count
        }
    }

    private static func silent(_ processes: Set<Process>) -> AdapterFailure {
        let numbers = processes.map(\.identifier).sorted().map { "\($0)" }.joined(separator: ", ")
        return AdapterFailure(
            "look at",
            processes.count == 1 ? "the process \(numbers)" : "the processes \(numbers)",
            "what it was started with cannot be read in time",
            remedy: "End it, and the program that serves its file system. ps and pgrep may hang, too; as root, "
                + "echo 1 > /sys/fs/fuse/connections/NUMBER/abort ends a FUSE file system that does not answer"
        )
    }

    private func end(_ result: Result<ProcessTree, AdapterFailure>) {
        state.withLock { state in
            state.result = result
            if let process = state.abandoned { stuck.add(process, of: user, -1) }
        }
    }

    /// - Returns: the process that was waited for, if nobody waits for the thread any more; `nil` where it has just ended.
    private func abandon() -> Process? {
        state.withLock { state in
            guard state.result == nil else { return nil }
            state.abandoned = state.process
            // Under the lock: the end of the thread takes it away again.
            stuck.add(state.process, of: user, 1)
            return state.process
        }
    }
}
