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
        /// How many processes of one user are waited for.
        static let mostOfUser = 16

        private let threads = Locked<[UInt32: [Process: Int]]>([:])

        func processes(of user: UInt32) -> Set<Process> { threads.withLock { Set($0[user, default: [:]].keys) } }

        fileprivate func add(_ process: Process, of user: UInt32, _ change: Int) {
            threads.withLock { threads in
                var own = threads[user, default: [:]]
                let count = own[process, default: 0] + change
                own[process] = count > 0 ? count : nil
                threads[user] = own.isEmpty ? nil : own
            }
        }
    }

    private struct State {
        /// What is read at present that may never answer.
        var process: Process?
        /// How often the look has gone on.
        var count = 0
        var result: Result<ProcessTree, AdapterFailure>?
        var isAbandoned = false
        /// The process that was the reason.
        var silent: Process?
    }

    private let user: UInt32
    private let stuck: Stuck
    private let state = Locked(State())

    private init(_ user: UInt32, _ stuck: Stuck) {
        self.user = user
        self.stuck = stuck
    }

    /// Reads what may never answer.
    ///
    /// - Throws: what `body` throws; ``AdapterFailure`` where another thread waits for the process already, too many processes of the user are waited for,
    ///   or nobody waits for this look.
    func reads<Answer>(
        _ process: Process,
        _ body: () throws(AdapterFailure) -> Answer
    ) throws(AdapterFailure) -> Answer {
        let others = stuck.processes(of: user)
        if others.contains(process) { throw Self.silent([process]) }
        if others.count >= Stuck.mostOfUser { throw Self.silent(others) }
        try goesOn(process)
        let answer = try body()
        try goesOn(nil)
        return answer
    }

    private func goesOn(_ process: Process?) throws(AdapterFailure) {
        let isAbandoned = state.withLock { state in
            state.process = process
            state.count += 1
            return state.isAbandoned
        }
        if isAbandoned { throw slow }
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
            let (result, count) = scan.state.withLock { ($0.result, $0.count) }
            if let result { return try result.get() }
            if count == last, let process = scan.abandonSilent(count) { throw silent([process]) }
            // A machine that stood still has not shown yet whether one process is the cause.
            if last >= 0, SuspendingClock.now >= end, scan.abandon() { throw scan.slow }
            last = count
        }
    }

    private static func silent(_ processes: Set<Process>) -> AdapterFailure {
        let numbers = processes.map(\.identifier).sorted().map { "\($0)" }.joined(separator: ", ")
        return AdapterFailure(
            "look at",
            processes.count == 1 ? "the process \(numbers)" : "the processes \(numbers)",
            "what was to be read did not answer",
            remedy: "End this, and the program that serves its file system. ps and pgrep may hang, too; as root, "
                + "echo 1 > /sys/fs/fuse/connections/NUMBER/abort ends a FUSE file system that does not answer"
        )
    }

    private var slow: AdapterFailure {
        AdapterFailure(
            "look at",
            "the processes of user \(user)",
            "not all were read in time",
            remedy: "See top: the machine is busy, or that user starts processes without end; the look is tried again"
        )
    }

    private func end(_ result: Result<ProcessTree, AdapterFailure>) {
        state.withLock { state in
            state.result = result
            if let process = state.silent { stuck.add(process, of: user, -1) }
        }
    }

    /// - Returns: the process that is waited for, from which on nobody waits for the thread; `nil` where it has gone on, or reads nothing of a process.
    private func abandonSilent(_ count: Int) -> Process? {
        state.withLock { state in
            guard state.result == nil, state.count == count, let process = state.process else { return nil }
            (state.isAbandoned, state.silent) = (true, process)
            // Under the lock: the end of the thread takes it away again.
            stuck.add(process, of: user, 1)
            return process
        }
    }

    /// - Returns: whether nobody waits for the thread any more; not where it has just ended.
    private func abandon() -> Bool {
        state.withLock { state in
            state.isAbandoned = state.result == nil
            return state.isAbandoned
        }
    }
}
