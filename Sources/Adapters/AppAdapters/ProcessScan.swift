import Basics
import DBus
import Dispatch
import Glibc
import Synchronization

/// A scan of all processes that ends even if one process never responds.
///
/// The kernel reads a process's arguments and environment from its memory, and the adapter reads a Flatpak's name from
/// below the process's root directory. Both may be on a FUSE file system of the user or on a server that is gone. A
/// thread that reads there is stuck in the kernel, and no signal wakes it.
final class ProcessScan: Sendable {
    struct Process: Hashable {
        let identifier: pid_t
        let start: UInt64
    }

    /// The threads that are stuck on unresponsive processes.
    final class Stuck: Sendable {
        static let shared = Stuck()
        /// The maximum number of unresponsive processes of one user.
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
        /// The process that is being read.
        var process: Process?
        /// The number of reads so far.
        var count = 0
        var result: Result<ProcessTree, AdapterFailure>?
        var isAbandoned = false
        /// The unresponsive process that caused the abandonment.
        var silent: Process?
    }

    private let user: UInt32
    private let stuck: Stuck
    private let state = Locked(State())

    private init(_ user: UInt32, _ stuck: Stuck) {
        self.user = user
        self.stuck = stuck
    }

    /// Performs a read that may never return. Throws if another thread is stuck on the process, too many processes of
    /// the user are unresponsive, or this scan is abandoned.
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

    /// Runs `body` on a separate thread and blocks this one until it ends. A thread that is stuck on an unresponsive
    /// process outlives the call, which names the process in its error.
    /// - Parameter patience: a process may take one to two times this long, and all processes together twelve times.
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
        // Uses this thread if the system grants no other: a program that forks without end must not prevent its own
        // end.
        if QuietThread.start("processes", work) == nil { work() }
        let end = SuspendingClock.now + patience * 12
        var last = -1
        while true {
            _ = isDone.wait(timeout: .now() + .milliseconds(Int(patience / .milliseconds(1))))
            let (result, count) = scan.state.withLock { ($0.result, $0.count) }
            if let result { return try result.get() }
            if count == last, let process = scan.abandonSilent(count) { throw silent([process]) }
            // The first pass has no earlier count to compare, so it cannot tell whether a single process is the cause.
            if last >= 0, SuspendingClock.now >= end, scan.abandon() { throw scan.slow }
            last = count
        }
    }

    private static func silent(_ processes: Set<Process>) -> AdapterFailure {
        let numbers = processes.map(\.identifier).sorted().map { "\($0)" }.joined(separator: ", ")
        let what = processes.count == 1 ? "the process \(numbers)" : "the processes \(numbers)"
        let remedy =
            "End each named process, and the program that serves its file system. ps and pgrep may hang, too; as root, "
            + "echo 1 > /sys/fs/fuse/connections/NUMBER/abort ends a FUSE file system that does not respond"
        return AdapterFailure("look at \(what): its files in /proc did not respond in time", remedy: remedy)
    }

    private var slow: AdapterFailure {
        AdapterFailure(
            "look at the processes of user \(user): not all of them were read in time",
            remedy: "See top: the machine is busy, or that user starts processes without end; the check is retried"
        )
    }

    private func end(_ result: Result<ProcessTree, AdapterFailure>) {
        state.withLock { state in
            state.result = result
            if let process = state.silent { stuck.add(process, of: user, -1) }
        }
    }

    /// - Returns: the process that the abandoned thread is stuck on; `nil` if the thread made progress or is reading no
    ///   process.
    private func abandonSilent(_ count: Int) -> Process? {
        state.withLock { state in
            guard state.result == nil, state.count == count, let process = state.process else { return nil }
            (state.isAbandoned, state.silent) = (true, process)
            // Inside the lock, because the thread removes the entry when it ends.
            stuck.add(process, of: user, 1)
            return process
        }
    }

    /// - Returns: whether the thread is abandoned; `false` if it has just ended.
    private func abandon() -> Bool {
        state.withLock { state in
            state.isAbandoned = state.result == nil
            return state.isAbandoned
        }
    }
}
