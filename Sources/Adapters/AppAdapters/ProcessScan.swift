import DBusTransport
import Dispatch
import Glibc
import Synchronization

/// A look at all processes that ends although one of them never answers. The kernel reads the words and variables of a process from its memory, and
/// the adapter a Flatpak's name from a file below its root directory. Both may lie on a file system that the process's user serves, or on a server that
/// is gone. Whoever reads there waits in the kernel, where no signal ends the wait.
final class ProcessScan: Sendable {
    /// How many threads are stuck at a process.
    final class Stuck: Sendable {
        static let shared = Stuck()
        static let most = 16
        fileprivate let threads = Locked(0)
        var count: Int { threads.withLock { $0 } }
    }

    private struct State {
        /// Whose turn it is, and how many had theirs.
        var process: pid_t = 0
        var count = 0
        var result: Result<ProcessTree, AdapterFailure>?
        var isAbandoned = false
    }

    private let state = Locked(State())

    /// Called before anything of the process is read that may never answer.
    func begins(_ process: pid_t) {
        state.withLock { state in
            state.process = process
            state.count += 1
        }
    }

    /// Runs `body` on a thread of its own, and waits for it on this one. A thread that is stuck is left behind, and ends when the process answers.
    ///
    /// - Parameter patience: how long a process may take, which it gets once or twice.
    /// - Throws: what `body` throws; ``AdapterFailure`` that names the process that does not answer, or says that too many threads are stuck.
    static func run(
        patience: Duration,
        stuck: Stuck = .shared,
        _ body: @escaping @Sendable (ProcessScan) throws(AdapterFailure) -> ProcessTree
    ) throws(AdapterFailure) -> ProcessTree {
        guard stuck.count < Stuck.most else {
            throw ProcessTree.failure("/proc", "\(Stuck.most) threads wait for processes that do not answer", remedy)
        }
        let scan = ProcessScan()
        let isDone = DispatchSemaphore(value: 0)
        let work: @Sendable () -> Void = {
            scan.end(Result(catching: { () throws(AdapterFailure) in try body(scan) }), stuck)
            isDone.signal()
        }
        // Where the system grants no thread, it is this one.
        if QuietThread.start("processes", work) == nil { work() }
        var last = -1
        while true {
            _ = isDone.wait(timeout: .now() + .milliseconds(Int(patience / .milliseconds(1))))
            let now = scan.state.withLock { $0 }
            if let result = now.result { return try result.get() }
            if now.count == last, scan.abandon(stuck) {
                throw ProcessTree.failure("the process \(now.process)", "it does not answer", remedy)
            }
            last = now.count
        }
    }

    private static let remedy =
        "End such a process, and the one that serves its file systems (/proc/NUMBER/mountinfo). Programs that show its words wait for it, too"

    private func end(_ result: Result<ProcessTree, AdapterFailure>, _ stuck: Stuck) {
        let wasAbandoned = state.withLock { state in
            state.result = result
            return state.isAbandoned
        }
        if wasAbandoned { stuck.threads.withLock { $0 -= 1 } }
    }

    /// - Returns: whether nobody waits for the thread any more; not where it has just ended.
    private func abandon(_ stuck: Stuck) -> Bool {
        let isAbandoned = state.withLock { state in
            state.isAbandoned = state.result == nil
            return state.isAbandoned
        }
        if isAbandoned { stuck.threads.withLock { $0 += 1 } }
        return isAbandoned
    }
}
