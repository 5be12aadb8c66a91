import DBusTransport
import Dispatch
import Glibc
import Synchronization

/// Threads for work that blocks or computes for long. They are the broker's own: neither a flood of such work nor a disk that stands still
/// takes a thread from Swift's pool or libdispatch's, by which sign-outs go on.
package final class Workers: Sendable {
    /// The queue is full.
    package struct Full: Error {}

    /// What the threads share. They keep it, and not their owner, alive.
    private final class Queue: Sendable {
        struct State {
            var jobs: [@Sendable () -> Void] = []
            var started = 0
            var idle = 0
        }

        let state = Locked(State())
        let signal = DispatchSemaphore(value: 0)

        /// The next job, as soon as there is one; `nil` at the end.
        func next() -> (@Sendable () -> Void)? {
            state.withLock { $0.idle += 1 }
            signal.wait()
            return state.withLock { state in
                state.idle -= 1
                return state.jobs.isEmpty ? nil : state.jobs.removeFirst()
            }
        }
    }

    private let label: StaticString
    private let count: Int
    private let capacity: Int
    private let queue = Queue()

    /// - Parameters:
    ///   - count: how many jobs run at once, at most.
    ///   - capacity: how many more wait, at most.
    package init(label: StaticString, count: Int, capacity: Int) {
        self.label = label
        self.count = count
        self.capacity = capacity
    }

    /// Jobs that wait are still done.
    deinit { for _ in 0..<queue.state.withLock({ $0.started }) { queue.signal.signal() } }

    /// Runs the job on one of the threads, in the order of the calls.
    ///
    /// - Returns: `false` where too many wait already, or where the system grants no thread at all; the job is not run then.
    @discardableResult
    package func submit(_ job: @escaping @Sendable () -> Void) -> Bool {
        let isTaken = queue.state.withLock { state in
            guard state.jobs.count < capacity + state.idle else { return false }
            // Without an idle thread for it, one is started; where the system grants none, those that there are will do it.
            if state.idle <= state.jobs.count, state.started < count {
                if startThread() { state.started += 1 }
                guard state.started > 0 else { return false }
            }
            state.jobs.append(job)
            return true
        }
        if isTaken { queue.signal.signal() }
        return isTaken
    }

    /// Runs `body` and returns what it returns. A task that is cancelled meanwhile waits all the same.
    ///
    /// - Throws: ``Full``; `body` is not run then.
    package func run<Value: Sendable>(_ body: @escaping @Sendable () -> Value) async throws(Full) -> Value {
        let value: Value? = await withCheckedContinuation { continuation in
            if !submit({ continuation.resume(returning: body()) }) { continuation.resume(returning: nil) }
        }
        guard let value else { throw Full() }
        return value
    }

    private func startThread() -> Bool {
        let thread = QuietThread.start(label) { [queue] in
            while let job = queue.next() { job() }
        }
        return thread != nil
    }
}
